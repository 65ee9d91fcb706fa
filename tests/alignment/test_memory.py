"""What the objective allocates, counted tensor by tensor, and what it multiplies."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lengthwise.alignment import kernels
from tests.alignment.problems import problem

VOCABULARY, WIDTH, PAIRS, TILE_ROWS = 997, 24, 4, 2
SIZES = [(1, 24), (2, 48)]


class Allocations(TorchDispatchMode):
    """Follows the storages that operations make: the largest, and the most bytes alive at once."""

    def __init__(self, *known):
        super().__init__()
        self._alive = {}
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.largest = self.peak = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self._known:
                    self._alive[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
                    self.largest = max(self.largest, storage.nbytes())
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


@pytest.fixture
def measure(monkeypatch):
    """Allocations of a forward and backward pass, without the gradients themselves."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(kernels, "_TILE_LOGITS_A_THREAD", -(-TILE_ROWS * VOCABULARY // threads))

    def measure(
        batch, length, *, run="fused", wanted=("hidden_long", "hidden_short", "head_weight"), **options
    ):
        data = problem(
            batch=batch, length=length, offset=length // 4, min_context=0, width=WIDTH, vocabulary=VOCABULARY,
            dtype=options.pop("dtype", torch.float32), soft_cap=options.pop("soft_cap", None),
        )  # fmt: skip
        leaves = data.leaves(wanted)
        with Allocations(*leaves.values(), data.labels_long, data.labels_short) as allocations:
            loss = getattr(data, run)(leaves, **{"alpha": 0.3, **options}).loss
            if wanted:
                loss.backward()
        results = sum(leaves[name].nbytes for name in wanted)
        return allocations.largest, allocations.peak - results

    return measure


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"divergence": "jeffreys"},
        {"divergence": "js"},
        {"soft_cap": 5.0},
        {"dtype": torch.bfloat16, "accumulate_dtype": torch.float32},
        {"ce_on": "long", "alpha": 0.0},
    ],
    ids=str,
)
def test_no_tensor_grows_with_positions_times_vocabulary(measure, options):
    peaks = []
    for batch, length in SIZES:
        largest, peak = measure(batch, length, chunk_size=PAIRS, **options)
        positions = batch * length
        results = max(positions * WIDTH, VOCABULARY * WIDTH) * 4
        assert largest <= max(results, 2 * PAIRS * VOCABULARY * 4)
        peaks.append((peak, positions))
    # What grows at all are labels, masks and row numbers: a few integers for each row.
    (smallest, fewest), (greatest, most) = peaks
    assert greatest - smallest < 100 * (most - fewest)


def test_beyond_results_there_is_a_chunk_of_logits_and_a_tile(measure):
    _, peak = measure(2, 24, chunk_size=PAIRS)
    chunk = 2 * PAIRS * VOCABULARY * 4
    tile = 5 * TILE_ROWS * VOCABULARY * 4
    rows = 2 * PAIRS * WIDTH * 4 * 4
    assert chunk + tile < peak < chunk + tile + rows + 100 * 2 * 24


def test_a_wide_sum_of_a_16_bit_head_is_all_that_it_adds(measure):
    _, narrow = measure(2, 24, chunk_size=PAIRS, dtype=torch.bfloat16, accumulate_dtype=torch.bfloat16)
    _, wide = measure(2, 24, chunk_size=PAIRS, dtype=torch.bfloat16, accumulate_dtype=torch.float32)
    # The sum in fp32, and two blocks of the weight's rows, all of which fit one block here.
    assert wide - narrow <= 4 * VOCABULARY * WIDTH + 2 * 2 * VOCABULARY * WIDTH


@pytest.mark.parametrize("wanted", [("hidden_long", "hidden_short"), ("hidden_short",), ()])
def test_a_frozen_head_costs_no_gradient_of_its_size(measure, wanted):
    largest, peak = measure(1, 24, chunk_size=2, wanted=wanted)
    assert largest <= 4 * VOCABULARY * 4 < VOCABULARY * WIDTH * 4
    assert peak < VOCABULARY * WIDTH * 4


def test_the_watch_sees_the_logits_of_the_plain_form(measure):
    largest, peak = measure(2, 24, run="plain")
    assert largest >= 2 * 24 * VOCABULARY * 4
    assert peak > 5 * largest


class Products(TorchDispatchMode):
    """Counts the multiplications in matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
            (n, inner), (_, m) = (tensor.shape for tensor in arguments[-2:])
            self.count += n * inner * m
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("detach", ["none", "short"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("short_needs", [True, False])
def test_a_view_that_is_not_trained_costs_no_gradient(alpha, detach, short_needs):
    data = problem(min_context=0)
    wanted = ("hidden_long", "hidden_short", "head_weight") if short_needs else ("hidden_long", "head_weight")
    leaves = data.leaves(wanted)
    with Products() as products:
        output = data.fused(leaves, alpha=alpha, divergence="jeffreys", detach=detach, ce_on="long")
    output.loss.backward()
    trained = alpha > 0 and detach == "none"
    assert (leaves["hidden_short"].grad is not None) == (trained and short_needs)
    pairs = len(data.labels_long) * data.geometry.paired_positions
    unpaired = [
        (labels != -100).sum() - (labels[:, rows] != -100).sum()
        for labels, rows in (
            (data.labels_long, data.geometry.long_rows),
            (data.labels_short, data.geometry.short_rows),
        )
    ]
    long, short = (pairs + int(rows) for rows in unpaired)
    # Forward for all rows, then hidden states' and the head's gradients for those that are trained.
    rows = 3 * long + (1 + trained * (1 + short_needs)) * short
    assert products.count == rows * 53 * 8
