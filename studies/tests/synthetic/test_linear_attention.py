from __future__ import annotations

import pytest
import torch

from lengthwise_studies.synthetic import theorem2
from lengthwise_studies.synthetic.theorem2 import as_table, measured_errors, train_tables


def test_sampled_errors_are_the_exact_ones():
    tables = torch.tensor([[[0.3, -1.7], [2.2, 4.1]], [[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64)
    for task in theorem2.TARGETS:
        errors = measured_errors(task, tables, [1, 2, 9], samples=40_000)
        for row, table in zip(errors, tables, strict=True):
            exact = [theorem2.error(task, as_table(table), length) for length in (1, 2, 9)]
            assert row.tolist() == pytest.approx(exact, rel=0.03, abs=1e-12)


@pytest.mark.parametrize(("rank", "minimum"), [(1, theorem2.rank_one_minimum), (2, theorem2.full_minimum)])
def test_training_on_samples_comes_close_to_the_minimum_but_not_below(rank, minimum):
    best = minimum("sum", 4)
    tables = train_tables("sum", 4, seeds=[0, 1], rank=rank, steps=800, batch=128)
    losses = [theorem2.objective("sum", as_table(table), 4) for table in tables]
    assert min(losses) >= best.loss - 1e-12
    assert min(losses) <= best.loss * 1.02
    if rank == 1:
        assert torch.linalg.det(tables).abs().max() < 1e-9
