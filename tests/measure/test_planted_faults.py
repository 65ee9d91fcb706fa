"""Faults that serving really has, planted on purpose: each is found, and sound pairs are equal."""

from pathlib import Path
from typing import Any

import pytest

from checks.lab.bases import base_of, text_of
from checks.lab.judged import judged
from checks.lab.sides import Base, Pair
from checks.lab.table import PAIRS
from lengthwise.measure import Comparison, run
from lengthwise.report.comparison_verdict import verdict
from lengthwise.settings import Subject
from lengthwise.testing import save_tiny_model, tiny_text

ALL = [pytest.param(pair, id=f"{kind}: {pair.what}") for kind, pairs in PAIRS.items() for pair in pairs]


@pytest.fixture(scope="module")
def bases() -> dict[tuple[str, str], Base]:
    """The models by name and dtype, whose passes are kept."""
    return {}


@pytest.mark.real
@pytest.mark.parametrize("pair", ALL)
def test_what_is_said(pair: Pair, bases: dict[tuple[str, str], Base]) -> None:
    key = (pair.base, pair.dtype)
    if key not in bases:
        bases[key] = base_of(pair.base).cast(pair.dtype)
    found = judged(pair, bases[key], text_of(pair.base, pair.raw))
    assert not found.wrong, f"{'; '.join(found.wrong)}\n{found.said}"


def test_no_two_pairs_have_one_name() -> None:
    names = [f"{kind}: {pair.what}" for kind, pairs in PAIRS.items() for pair in pairs]
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "plain", max_position_embeddings=512)


def said(a: Path, **of_b: Any) -> str:
    """What is said of a side that settings name, in one line."""
    spec = Comparison(side_b={"model": str(a), **of_b}, lengths=(256,), windows=3)
    found = run(spec, Subject(model=str(a)), [tiny_text(1800, seed=seed) for seed in range(3)])
    return " ".join(verdict(found.rows))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_an_adapter_by_name(plain: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(plain)
    how = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(model, how).save_pretrained(tmp_path / "adapter")
    assert "predicts as A does" not in said(plain, adapter=str(tmp_path / "adapter"))


@pytest.mark.parametrize(
    ("of_b", "sound"),
    [
        ({"cache": "checks.lab.caches:forgets", "read": "chunks=64"}, False),
        ({"kv_cache": "static", "read": "chunks=64"}, True),
        ({"attn": "eager"}, True),
        ({"read": "decode=16"}, True),
    ],
    ids=str,
)
def test_a_cache_or_a_path_by_name(plain: Path, of_b: dict[str, str], sound: bool) -> None:
    assert ("predicts as A does" in said(plain, **of_b)) is sound


def test_weights_in_four_bits_by_name(plain: Path) -> None:
    pytest.importorskip("bitsandbytes")
    assert "predicts as A does" not in said(plain, quantize="nf4")
