"""Settings that a measurement cannot work with are refused when they are made, each with its name."""

from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import Limit, LongPpl, Misalignment, Perplexity


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Misalignment, {"lengths": (3,)}, "lengths is 3"),
        (Misalignment, {"lengths": ()}, "lengths"),
        (Misalignment, {"windows": 0}, "windows is 0"),
        (Misalignment, {"views": 1}, "views is 1"),
        (Misalignment, {"batch_size": -1}, "batch_size is -1"),
        (Misalignment, {"estimator": "latice"}, "did you mean 'lattice'"),
        (Misalignment, {"bos": "sometimes"}, "bos"),
        (Perplexity, {"lengths": (300, 1024)}, r"length 300 does not divide .* 1024\n.*256, 512"),
        (Perplexity, {"lengths": (3, 8)}, "same tokens: 2, 4"),
        (Perplexity, {"lengths": (1, 8)}, "lengths is 1"),
        (Limit, {"tolerance": 0.0}, "tolerance is 0"),
        (Limit, {"share": 1.0}, "share is 1"),
        (Limit, {"reference": 60}, "reference is 60"),
        (Limit, {"reference": 8}, "reference is 8"),
        (Limit, {"passage": 16, "scored": 16}, "scored is 16"),
        (LongPpl, {"max_length": 56, "short": 40, "stride": 16}, "texts of 56 tokens .* up to 56 tokens"),
        (LongPpl, {"max_length": 56, "short": 45}, r"up to 56 tokens \(short 45 \+ stride 11\)"),
        (LongPpl, {"alpha": -1.0}, "alpha is -1"),
        (LongPpl, {"stride": 0}, "stride is 0"),
    ],
)
def test_settings_that_cannot_work(kind: type, settings: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        kind(**settings)
