"""Every quantization that gguf-py reads is the numbers that it reads, or is refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from lengthwise.errors import UsageError
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.checkpoints.test_gguf_settings import made
from tests.gguf_files import write_gguf

pytestmark = pytest.mark.usefixtures("cache")

SHAPE = (32, 256)


def blocks(kind: Kind) -> np.ndarray | None:
    """Numbers in blocks of a kind: rounded by gguf-py, or drawn bytes that are finite; None where it cannot."""
    rng = np.random.default_rng(int(kind))
    numbers, bits = rng.normal(size=SHAPE, scale=0.2).astype(np.float32), gguf.GGML_QUANT_SIZES[kind]
    try:
        return gguf.quants.quantize(numbers, kind)
    # gguf-py reads more kinds (Q2_K to Q6_K, IQ) than it writes.
    except NotImplementedError:
        found = rng.integers(0, 256, (numbers.size // bits[0], bits[1]), dtype=np.uint8)
    try:
        with np.errstate(all="ignore"):
            while (bad := ~np.isfinite(gguf.quants.dequantize(found, kind)).all(1)).any():
                found[bad] = rng.integers(0, 256, (int(bad.sum()), bits[1]), dtype=np.uint8)
    # Kinds that it does not read either (integers, F64, Q8_1, Q8_K) are those that `UNREAD` holds to be refused.
    except NotImplementedError:
        return None
    return found.reshape(SHAPE[0], -1)


STORED = {kind: found for kind in Kind if kind is not Kind.F32 and (found := blocks(kind)) is not None}


UNREAD = {
    kind: np.zeros((SHAPE[0], SHAPE[1] // size * width), np.uint8)
    for kind, (size, width) in gguf.GGML_QUANT_SIZES.items()
    if kind is not Kind.F32 and kind not in STORED
}


def written(path: Path, kinds: list[Kind]) -> Path:
    """A model with one of its weights in each kind."""
    model = made("qwen2", hidden_size=256, intermediate_size=32, num_hidden_layers=len(kinds))
    stored = {
        f"blk.{layer}.ffn_gate.weight": (kind, (STORED | UNREAD)[kind]) for layer, kind in enumerate(kinds)
    }
    return write_gguf(path, model, tiny_tokenizer(), stored=stored)


def test_every_kind(tmp_path: Path) -> None:
    assert len(STORED) > 20
    layers = load(str(written(tmp_path / "made.gguf", [*STORED]))).model.model.layers
    for (kind, found), layer in zip(STORED.items(), layers, strict=True):
        wanted = torch.from_numpy(np.array(gguf.quants.dequantize(found, kind))).float()
        assert torch.equal(layer.mlp.gate_proj.weight, wanted), kind.name


@pytest.mark.parametrize("kind", UNREAD, ids=lambda kind: kind.name)
def test_a_kind_that_is_not_read_is_refused(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be converted"):
        load(str(written(tmp_path / "made.gguf", [kind])))
