"""What an adapter touches, and what a merge makes of it: the predictions of model and adapter, or a refusal."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import yaml
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from checks.zoo.architectures import animals, build
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import UsageError
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_tokenizer
from lengthwise.training import train
from lengthwise.training.merging import merge_run
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import add_adapter, load_for_training
from tests.tiny_folders import rewritten

Make = Callable[..., Recipe]
VIRTUAL = {"num_virtual_tokens": 4}
MERGED: dict[str, dict[str, Any]] = {
    "LoRA": {},
    "DoRA": {"use_dora": True},
    "rank-stabilized": {"use_rslora": True},
    "biases": {"bias": "all"},
    "embeddings and norms, whole": {"modules_to_save": ["embeddings", "norms"]},
    "embedding and head, each whole": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "single tokens": {"trainable_token_indices": [3, 5]},
    "tokens alone": {"config": "TrainableTokensConfig", "token_indices": [3, 5]},
    "IA3": {
        "config": "IA3Config",
        "target_modules": ["k_proj", "down_proj"],
        "feedforward_modules": ["down_proj"],
    },
    "LoKr": {"config": "LoKrConfig", "target_modules": ["q_proj"]},
    "norms": {"config": "LNTuningConfig"},
    "first weights by PiSSA": {"init_lora_weights": "pissa"},
    "first weights by OLoRA": {"init_lora_weights": "olora"},
    **{
        name: {"config": name, "target_modules": ["q_proj"]}
        for name in ("FrodConfig", "SupertuningConfig")
        # Of new versions of PEFT; they save whole numbers.
        if hasattr(peft, name)
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "biases of LoRA": ({"lora_bias": True}, "PEFT does not merge"),
    "layers that are there twice": ({"layer_replication": [[0, 2], [1, 2]]}, "predicts something else"),
    "adaption prompt": (
        {"config": "AdaptionPromptConfig", "adapter_len": 4, "adapter_layers": 2},
        "AdaptionPromptConfig cannot be merged",
    ),
    "prompt": ({"config": "PromptTuningConfig", **VIRTUAL}, "PromptTuningConfig cannot be merged"),
    "prefix": ({"config": "PrefixTuningConfig", **VIRTUAL}, "PrefixTuningConfig cannot be merged"),
}
# PEFT warns of layers whose kind it does not know, of biases, and of vocabularies.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EMBEDDING = {"target_modules": ["q_proj", "embed_tokens"]}


# Whether embedding and head are one tensor matters where an adapter touches one of them.
CASES = [("untied", case) for case in (*MERGED, "an embedding")]
CASES += [
    ("tied", case)
    for case in (*MERGED, "an embedding")
    if case == "LoRA" or "embedding" in case or "token" in case
]


@pytest.fixture
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    tie = getattr(request, "param", "untied")
    return str(save_tiny_model(tmp_path / tie, tie_word_embeddings=tie == "tied"))


def trained(recipe: Recipe, run: Path, *, scale: float = 0.1) -> Path:
    """The folder of a run whose adapter has random weights."""
    loaded = load_for_training(recipe)
    model = add_adapter(loaded.model, recipe.adapter)
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += scale * torch.randn_like(parameter)
    save_whole(model, loaded.tokenizer, run / "model")
    (run / "config.yaml").write_text(yaml.safe_dump({"kind": "train", **recipe.to_dict()}))
    return run


@torch.no_grad()
def predictions(*model: str) -> Tensor:
    loaded = load(model[0], dtype="float32", adapter=model[1] if model[1:] else None)
    return loaded.model(input_ids=torch.arange(40)[None]).logits


@pytest.mark.parametrize(("base", "case"), CASES, indirect=["base"])
def test_it_predicts_as_model_and_adapter_do(make: Make, base: str, tmp_path: Path, case: str) -> None:
    run = trained(make(model=base, adapter=MERGED.get(case, EMBEDDING)), tmp_path / "run")
    if case == "an embedding" and base.endswith("/tied"):
        with pytest.raises(UsageError, match=r"(?s)something else.*tied head"):
            merge_run(run, tmp_path / "merged")
        assert not (tmp_path / "merged").exists()
        return
    merge_run(run, tmp_path / "merged")
    expected = predictions(base, str(run / "model"))
    torch.testing.assert_close(predictions(str(tmp_path / "merged")), expected, rtol=1e-4, atol=1e-4)
    assert (expected - predictions(base)).abs().max() > 0.01


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_merged_writes_nothing(make: Make, shared: Path, tmp_path: Path, case: str) -> None:
    adapter, says = REFUSED[case]
    run = trained(make(adapter=adapter), tmp_path / "run")
    with pytest.raises(UsageError, match=says):
        merge_run(run, tmp_path / "merged")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_rounding_takes_of_the_adapter_is_said(
    make: Make, base: str, tmp_path: Path, dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an adapter that changes little: against the logits of both models by themselves."""
    run = trained(make(model=base, adapter={}), tmp_path / "run", scale=1e-3)
    said = merge_run(run, tmp_path / "merged", dtype=dtype)["lost_to_rounding"]
    whole, plain = predictions(base, str(run / "model")), predictions(base)
    lost = float((predictions(str(tmp_path / "merged")) - whole).norm() / (whole - plain).norm())
    assert float(said.split("%")[0]) / 100 == pytest.approx(lost, rel=0.5, abs=1e-2)
    assert (lost > 0.5) == (dtype == "bfloat16") == ("--dtype float32 keeps it" in caplog.text)


def test_a_base_that_changed_since_the_run_is_refused(make: Make, base: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(make(model=base, adapter={}, steps=1), run)
    merge_run(run, tmp_path / "merged")
    shutil.rmtree(base)
    save_tiny_model(Path(base), seed=5, tie_word_embeddings=False)
    with pytest.raises(UsageError, match=r"the weights of .* changed"):
        merge_run(run, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_model_of_few_positions_is_merged(make: Make, tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=320, n_positions=20, n_embd=32, n_layer=1, n_head=2, bos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "base")
    tiny_tokenizer().save_pretrained(tmp_path / "base")
    run = trained(make(model=str(tmp_path / "base"), adapter={}), tmp_path / "run")
    merge_run(run, tmp_path / "merged")
    ids = torch.arange(20)[None]
    merged, both = (load(str(tmp_path / "merged")), load(str(tmp_path / "base"), adapter=str(run / "model")))
    torch.testing.assert_close(merged.model(input_ids=ids).logits, both.model(input_ids=ids).logits)


def test_an_adapter_that_changes_the_model_anew_at_each_load_is_refused(
    make: Make, base: str, tmp_path: Path
) -> None:
    adapter = trained(make(model=base, adapter={"init_lora_weights": "pissa"}), tmp_path / "run") / "model"
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"pissa"', '"pissa_niter_4"'))
    with pytest.raises(UsageError, match="pissa_niter_4"):
        load(base, adapter=str(adapter))


def test_a_quantized_base_is_refused(make: Make, base: str, tmp_path: Path) -> None:
    run = trained(make(model=base, adapter={}), tmp_path / "run")
    rewritten(Path(base), quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(UsageError, match=r"quantized \(gptq\)"):
        merge_run(run, tmp_path / "merged")


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_fails_with_its_own_cache_is_merged(make: Make, tmp_path: Path) -> None:
    build(next(each for each in animals() if each.name == "xlstm"), tmp_path / "m")
    train(make(model=str(tmp_path / "m"), adapter={"target_modules": "all-linear"}), out=tmp_path / "run")
    assert merge_run(tmp_path / "run", tmp_path / "merged")["lost_to_rounding"]
