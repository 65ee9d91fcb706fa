"""The Triton tile: its choice, that it compiles for a GPU, and, in a process of their own, its cases."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lengthwise.alignment import kernels
from lengthwise.alignment.divergences import DIVERGENCES, Objective
from lengthwise.alignment.tile import Tiles

CASES = Path(__file__).with_name("triton_cases.py")

needs_triton = pytest.mark.skipif(kernels.find_spec("triton") is None, reason="triton is not installed")


@needs_triton
def test_its_cases_pass_in_the_interpreter():
    # What the interpreter of Triton 3.4 does to NumPy's arrays.
    quiet = ("-W", "ignore:Conversion of an array:DeprecationWarning")
    words = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *quiet, str(CASES))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=CASES.parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@needs_triton
def test_the_objective_takes_the_tile_of_the_device(monkeypatch):
    from lengthwise.alignment.triton import TritonTiles

    gpu, rule = torch.device("cuda"), DIVERGENCES["sce"]
    monkeypatch.setattr(kernels, "kernels_pass", lambda device: False)
    assert kernels.tiles_on(gpu, 100, rule).func is Tiles
    monkeypatch.setattr(kernels, "kernels_pass", lambda device: True)
    assert kernels.tiles_on(gpu, 100, rule) is TritonTiles
    assert kernels.tiles_on(gpu, 100, replace(rule, source="unknown to the kernels")).func is Tiles
    assert kernels.tiles_on(torch.device("cpu"), 100, rule).func is Tiles


def test_without_triton_a_gpu_has_the_torch_tile(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert kernels.tiles_on(torch.device("cuda"), 100, DIVERGENCES["sce"]).func is Tiles


POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float64: "*fp64"}


def compiled(kernel, constants, dtype, target):
    """What Triton makes of a kernel for a GPU that need not be there."""
    import triton
    from triton.compiler import ASTSource

    constants = dict(constants)
    options = {name: constants.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    wide = "*fp64" if dtype == torch.float64 else "*fp32"
    types = {
        "logits": POINTERS[dtype],
        "labels": "*i64",
        "weights": wide,
        "divergence_weight": wide,
        "found": wide,
        "vocabulary": "i32",
    }
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constants)
    return triton.compile(source, target=target, options=options)


@needs_triton
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(
    ("divergence", "detach", "soft_cap", "dtype"),
    [("sce", "none", None, torch.bfloat16), ("js", "long", 30.0, torch.float16)],
)
def test_it_compiles_for_a_gpu(monkeypatch, tmp_path, divergence, detach, soft_cap, dtype):
    """To machine code, by the compiler that a GPU's machine would use: the interpreter takes more than it."""
    from triton.backends.compiler import GPUTarget

    from lengthwise.alignment import triton as triton_tile

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tiles = triton_tile.TritonTiles(
        50257,
        dtype=dtype,
        device=torch.device("cpu"),
        activation=(0.5, soft_cap),
        rule=Objective(divergence=divergence, detach=detach).rule,
        weight=0.1,
        gradient=True,
    )
    target = GPUTarget("cuda", 90, 32)
    pairs = compiled(triton_tile._pairs, tiles._pair_constants | tiles._constants, dtype, target)
    rows = compiled(triton_tile._rows, tiles._constants | {"GRADIENT": soft_cap is None}, dtype, target)
    for kernel in (pairs, rows):
        assert kernel.asm["cubin"]
