"""The Triton tile in Triton's interpreter, or without it on a GPU (`checks/gpu.sh`).

`test_triton.py` runs this file in a process of its own: the interpreter has to be chosen before triton is imported,
and for the whole process.
"""

import copy
import os

import pytest
import torch

from lengthwise.alignment import kernels
from lengthwise.alignment import triton as triton_tile
from lengthwise.alignment.divergences import DIVERGENCES, Objective
from lengthwise.alignment.kernels import kernels_pass
from lengthwise.alignment.tile import Tiles, wide_dtype
from lengthwise.alignment.triton import TritonTiles
from tests.alignment.problems import assert_fused_is_plain, problem, relative_error

# The interpreter computes with numpy, which warns of infinities; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# As tensors name it: to `kernels_pass` "cuda" and "cuda:0" are two devices, and each has a trial of its own.
DEVICE = torch.empty(0, device="cpu" if INTERPRETED else "cuda").device

TERMS = [(name, detach) for name, divergence in DIVERGENCES.items() for detach in divergence.detach]
# Each term over several blocks. What the head does, and what happens within one block, depend on the source of the
# divergence alone: a soft cap, and how much of the block is filled (1 of 32, 127 of 128), are tried with one of each.
PAIRS = [(*term, "plain", 500) for term in TERMS]
PAIRS += [
    (name, DIVERGENCES[name].detach[-1], "capped", vocabulary)
    for name in {divergence.source: name for name, divergence in DIVERGENCES.items()}.values()
    for vocabulary in (1, 127, 500)
]

HEADS = {
    "plain": (1.0, None),
    "scaled": (-0.6, None),
    "capped": (1.7, 5.0),
}
"""Scale and soft cap."""
STATISTICS = ("top", "total", "own", "cross", "score")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that small vocabularies have several, and their last is not full."""
    # On a GPU a block has a column for each of four warps' threads at least, as the kernels demand.
    monkeypatch.setattr(triton_tile, "_SMALLEST_BLOCK", 32 if INTERPRETED else 128)
    monkeypatch.setattr(triton_tile, "_LARGEST_BLOCK", 256)
    monkeypatch.setattr(kernels, "_VOCABULARY", 700)


class Rows:
    """Pairs of rows of linear outputs, labels and their weights; each third row has no label."""

    def __init__(self, pairs, vocabulary, *, dtype=torch.float64, std=3.0, noise=0.5, shift=0.0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        linear = torch.randn(pairs, 1, vocabulary, generator=generator, dtype=torch.float64)
        noise = noise * torch.randn(pairs, 2, vocabulary, generator=generator, dtype=torch.float64)
        self.linear = (std * (linear + noise) + shift).to(dtype)
        self.labels = torch.randint(0, vocabulary, (pairs, 2, 1), generator=generator)
        self.weights = torch.rand(pairs, 2, 1, generator=generator, dtype=wide_dtype(dtype)) + 0.5
        self.labels.view(-1)[::3], self.weights.view(-1)[::3] = 0, 0.0
        self.linear, self.labels, self.weights = (
            tensor.to(DEVICE) for tensor in (self.linear, self.labels, self.weights)
        )

    def tiles(self, kind, *, activation, divergence, detach, weight, gradient=True):
        return kind(
            self.linear.shape[-1],
            dtype=self.linear.dtype,
            device=self.linear.device,
            activation=activation,
            rule=Objective(divergence=divergence, detach=detach).rule,
            weight=weight,
            gradient=gradient,
        )

    def run(self, kind, *, activation=HEADS["plain"], divergence="sce", detach="none", weight=0.7):
        """Statistics by name, and gradients."""
        tiles = self.tiles(kind, activation=activation, divergence=divergence, detach=detach, weight=weight)
        logits = self.linear.clone()
        found = tiles.pairs(logits, self.labels, self.weights)
        return dict(zip(STATISTICS, found, strict=False)), logits

    def run_single(self, kind, *, activation=HEADS["plain"]):
        tiles = self.tiles(kind, activation=activation, divergence="sce", detach="none", weight=0.7)
        logits = self.linear.flatten(0, 1).clone()
        top, total = tiles.rows(logits, self.labels.flatten(0, 1), self.weights.flatten(0, 1))
        return {"top": top, "total": total}, logits

    def exact(self):
        """The same rows in fp64: the torch tile's own formulas are held in test_chunked.py."""
        rows = copy.copy(self)
        rows.linear, rows.weights = self.linear.double(), self.weights.double()
        return rows


def torch_tiles(vocabulary, **options):
    return Tiles(2, vocabulary, **options)


def assert_same(found, expected, tolerance, scale=1.0):
    """Each within `tolerance` of its largest magnitude, or of `scale`; a failure has the errors of all."""
    (statistics, gradient), (true_statistics, true_gradient) = found, expected
    assert statistics.keys() == true_statistics.keys()
    errors, wrong = {}, []
    for name, value in {**statistics, "gradient": gradient}.items():
        true = true_gradient if name == "gradient" else true_statistics[name]
        assert value.shape == true.shape
        largest = max(scale, true.abs().max().item())
        errors[name] = (value.double() - true.double()).abs().max().item() / largest
        # Not a number fails.
        if not errors[name] <= tolerance:
            wrong.append(name)
    assert not wrong, f"{wrong}: errors as shares of the largest {errors}, allowed {tolerance}"


@pytest.mark.parametrize(("divergence", "detach", "head", "vocabulary"), PAIRS)
def test_pairs_are_those_of_the_torch_tile(divergence, detach, head, vocabulary):
    rows = Rows(2, vocabulary)
    term = {"activation": HEADS[head], "divergence": divergence, "detach": detach}
    assert_same(rows.run(TritonTiles, **term), rows.run(torch_tiles, **term), 2e-14)


@pytest.mark.parametrize("vocabulary", [1, 32, 257])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_rows_without_partner_are_those_of_the_torch_tile(head, vocabulary):
    rows = Rows(3, vocabulary)
    found, expected = (rows.run_single(kind, activation=head) for kind in (TritonTiles, torch_tiles))
    assert_same(found, expected, 2e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("divergence", "head"),
    [("sce", "plain"), ("jeffreys", "plain"), ("jeffreys", "capped"), ("js", "capped"), ("entropy", "plain")],
)
def test_no_worse_than_the_torch_tile(divergence, head, dtype):
    rows = Rows(4, 700, dtype=dtype, std=4.0, noise=0.1)
    term = {"activation": HEADS[head], "divergence": divergence}
    statistics, gradient = rows.run(TritonTiles, **term)
    torch_statistics, torch_gradient = rows.run(torch_tiles, **term)
    truth, true_gradient = rows.exact().run(torch_tiles, **term)
    assert gradient.dtype == dtype
    if dtype == torch.bfloat16 and INTERPRETED:
        # The interpreter cuts off bits where a GPU rounds to nearest. Of the same logits in fp32:
        rows.linear = rows.linear.float()
        _, unrounded = rows.run(TritonTiles, **term)
        cut_off = (unrounded.view(torch.int32) >> 16 << 16).view(torch.float32)
        assert torch.equal(gradient.float(), cut_off)
        gradient = unrounded.bfloat16()
    for name, value in statistics.items():
        assert value.dtype == torch.float32
        error, theirs = (relative_error(each, truth[name]) for each in (value, torch_statistics[name]))
        assert error <= 2 * theirs + 1e-6, f"{name}: off by {error:.3g}, the torch tile by {theirs:.3g}"
    error, theirs = (relative_error(each, true_gradient) for each in (gradient, torch_gradient))
    assert error <= 1.05 * theirs + 2e-7, f"gradient: off by {error:.3g}, the torch tile by {theirs:.3g}"


def test_small_logits_keep_their_digits_under_a_soft_cap():
    """Where tanh is nearly the identity, its exponential form has lost what makes a difference."""
    rows = Rows(2, 300, dtype=torch.float32, std=1e-3)
    term = {"activation": (1.0, 50.0), "divergence": "jeffreys", "weight": 1e3}
    rows.weights.zero_()
    _, gradient = rows.run(TritonTiles, **term)
    _, torch_gradient = rows.run(torch_tiles, **term)
    _, truth = rows.exact().run(torch_tiles, **term)
    error, theirs = (relative_error(each, truth) for each in (gradient, torch_gradient))
    assert error <= 3 * theirs, f"off by {error:.3g}, the torch tile by {theirs:.3g}"


@pytest.mark.parametrize(("std", "shift"), [(3.0, 1e5), (3.0, -1e5), (1e4, 0.0), (1e30, 0.0)])
@pytest.mark.parametrize("divergence", ["sce", "js"])
def test_large_logits_do_not_overflow(divergence, std, shift):
    rows = Rows(3, 600, dtype=torch.float32, std=std, shift=shift)
    found = rows.run(TritonTiles, divergence=divergence)
    assert all(value.isfinite().all() for value in (*found[0].values(), found[1]))
    # The gradient of "sce" contains logits, so it has their rounding.
    assert_same(found, rows.run(torch_tiles, divergence=divergence), 1e-6, scale=max(std, 10.0))


@pytest.mark.parametrize("first", [True, False])
def test_entries_masked_by_infinity(first):
    """Rows without partner take them; for a pair 0 * infinity is not a number, as everywhere here."""
    rows = Rows(2, 600)
    masked = slice(0, 300) if first else slice(290, 600)
    rows.labels.fill_(310 if first else 5)
    rows.linear[..., masked] = float("-inf")
    assert_same(rows.run_single(TritonTiles), rows.run_single(torch_tiles), 1e-14)
    statistics, _ = rows.run(TritonTiles)
    assert statistics["own"].isnan().all()


@pytest.mark.parametrize("masked", [slice(0, 300), slice(290, 600)])
@pytest.mark.parametrize("divergence", ["sce", "jeffreys", "js"])
def test_entries_masked_by_the_lowest_number(divergence, masked):
    rows = Rows(2, 600, dtype=torch.float32)
    rows.linear[..., masked] = torch.finfo(torch.float32).min
    assert_same(
        rows.run(TritonTiles, divergence=divergence), rows.run(torch_tiles, divergence=divergence), 1e-5
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_goes_through(value):
    rows = Rows(2, 600)
    rows.linear[0, 1, 555] = value
    statistics, gradient = rows.run(TritonTiles)
    assert statistics["total"][:, :, 0].isnan().tolist() == [[False, True], [False, False]]
    assert gradient[0].isnan().all()
    assert gradient[1].isfinite().all()
    single, single_gradient = rows.run_single(TritonTiles)
    assert single["total"].isnan().flatten().tolist() == [False, True, False, False]
    assert single_gradient.isnan().any(dim=1).tolist() == [False, True, False, False]


def test_logits_stay_where_no_gradient_is_asked_for():
    rows = Rows(2, 300)
    tiles = rows.tiles(
        TritonTiles, activation=HEADS["capped"], divergence="js", detach="none", weight=0.7, gradient=False
    )
    logits = rows.linear.clone()
    found = tiles.pairs(logits, rows.labels, rows.weights)
    tiles.rows(logits.view(4, 300), rows.labels.view(4, 1), rows.weights.view(4, 1))
    assert torch.equal(logits, rows.linear)
    expected, _ = rows.run(TritonTiles, activation=HEADS["capped"], divergence="js")
    assert torch.equal(found, torch.stack([*expected.values()]))


def test_a_weight_of_zero_leaves_the_cross_entropy():
    rows = Rows(2, 300)
    assert_same(rows.run(TritonTiles, weight=0.0), rows.run(torch_tiles, weight=0.0), 1e-14)


@pytest.fixture
def triton_used(monkeypatch):
    """Sends the objective through the Triton tile; the list grows with each use."""
    # The trial, once a process, uses all of them.
    assert kernels_pass(DEVICE)
    monkeypatch.setattr(kernels, "TRITON_DEVICES", {DEVICE.type})
    used = []
    for name in ("pairs", "rows"):
        method = getattr(TritonTiles, name)

        def spy(self, *arguments, name=name, method=method):
            used.append(name)
            return method(self, *arguments)

        monkeypatch.setattr(TritonTiles, name, spy)
    monkeypatch.setattr(kernels, "Tiles", None)
    return used


@pytest.mark.parametrize(
    ("divergence", "detach"),
    [("sce", "none"), ("sce", "both-targets"), ("jeffreys", "short"), ("js", "none"), ("kl", "long")],
)
def test_the_objective(triton_used, divergence, detach):
    data = problem(length=8, offset=2, bias=True, logit_scale=1.7, soft_cap=6.0).on(DEVICE)
    term = {"alpha": 0.3, "divergence": divergence, "detach": detach}
    assert_fused_is_plain(data, chunk_size=5, **term)
    assert set(triton_used) == {"pairs", "rows"}


def test_the_trial_on_a_device_passes_only_if_the_kernels_are_right(monkeypatch):
    assert kernels_pass(DEVICE)

    def wrong(tiles, logits, labels, weights):
        found = right(tiles, logits, labels, weights)
        logits[1, 0] *= 1.1
        return found

    def fails(*_):
        raise RuntimeError("no such instruction")

    right = TritonTiles.pairs
    for broken, said in ((wrong, "off by"), (fails, "no such instruction")):
        monkeypatch.setattr(TritonTiles, "pairs", broken)
        kernels_pass.cache_clear()
        with pytest.warns(RuntimeWarning, match=said):
            assert not kernels_pass(DEVICE)
    kernels_pass.cache_clear()
