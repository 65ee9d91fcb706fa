from __future__ import annotations

import pytest

from lengthwise.results import read_results
from lengthwise_studies.sharpness import FACTORS, NOISE
from lengthwise_studies.study_table import produce


def test_sce_is_its_parts_and_jeffreys_is_below_the_variance_of_the_noise(tmp_path):
    """To second order Jeffreys is the variance of the change under p: NOISE^2 (1 - sum p^2) on average."""
    produce("sharpness", tmp_path / "out", scale="smoke")
    results = read_results(tmp_path / "out" / "results.json")
    for factor in FACTORS:
        sce, entropy, jeffreys = (row.value or 0 for row in results.select(arm=f"x{factor:g}"))
        assert sce == pytest.approx(entropy + jeffreys, rel=1e-12)
        assert 0 < jeffreys < 1.1 * NOISE**2
    assert jeffreys < entropy
