"""Settings that a measurement cannot work with are refused when they are made, each with its name."""

from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import Limit, LongPpl, Misalignment, Perplexity, run
from lengthwise.testing import tiny_llama, tiny_tokenizer
from tests.small_measurements import TEXTS


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
        (Perplexity, {"lengths": (3, 8)}, "same tokens: 2, 4, 8$"),
        (Perplexity, {"lengths": (16, 31)}, "same tokens: 31$"),
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


class _Twice(Perplexity):
    """A measurement of one's own that names its items alike."""

    def items(self, model: Any, text: Any, other: Any) -> list[Any]:
        return 2 * super().items(model, text, other)[: self.batch_size - 1]


@pytest.mark.parametrize(("batch_size", "message"), [(2, "2 items are named .*L16/s0000"), (1, "nothing to")])
def test_items_without_names_of_their_own_are_refused(batch_size: int, message: str):
    """The log would keep the first of them alone."""
    with pytest.raises(UsageError, match=message):
        run(_Twice(lengths=(16,), windows=2, batch_size=batch_size), (tiny_llama(), tiny_tokenizer()), TEXTS)
