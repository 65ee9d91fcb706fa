from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.clex_rotary import clex_modules, fixed_time
from lengthwise.checkpoints.extension import plan_extension, read_extension
from lengthwise.checkpoints.hidden import cache_among, cache_argument
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import MissingError, UsageError
from lengthwise.positions import ROPE_METHODS
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.architectures import logits, random_ids, tiny_model, with_lora
from tests.tiny_folders import rewritten


def save(model: Any, path: Path) -> Path:
    save_whole(model, tiny_tokenizer(), path)
    return path


def refusal(model: Any, method: str = "yarn", **arguments: Any) -> str:
    before = model.config.to_dict()
    with pytest.raises(UsageError) as caught:
        extend(model, method, **({"factor": 2.0, "name": "the model"} | arguments))
    assert model.config.to_dict() == before, "a refusal leaves the model as it was"
    return str(caught.value)


def _based(theta: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}, "num_hidden_layers": 3}


ELSEWHERE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
# Model, how it is made, what is asked for, what is said.
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("llama-gqa", {"rope_parameters": ELSEWHERE}, {}, "linear by 4"),
    *((name, {}, {}, "no rotary positions") for name in ("gpt2", "opt", "bloom-alibi", "gptj-bias")),
    *(
        ("llama-gqa", {}, {"factor": factor}, f"factor is {factor:g}")
        for factor in (0.5, 0.0, -2.0, float("nan"), float("inf"))
    ),
    *(
        (
            "llama-gqa",
            {},
            {"original_length": n},
            f"original_length = {n} for the model\nexpected: 2 to 64 tokens",
        )
        for n in (65, 0, -5, "32", 32.5, True)
    ),
    *(
        ("llama-gqa", _based(base), {"method": method}, f"not above that of the model, {base:.0f}")
        for base in (5e5, 1e6)
        for method in ("abf", "eabf")
    ),
]


@pytest.mark.parametrize(("name", "made", "asked", "says"), REFUSED, ids=str)
def test_what_is_refused(name: str, made: dict[str, Any], asked: dict[str, Any], says: str) -> None:
    assert says in refusal(tiny_model(name, **made), **asked)


@pytest.mark.parametrize("method", ["abf", "eabf"])
def test_a_base_that_is_given_is_taken_whatever_the_model_has(method: str) -> None:
    for own, given, taken in ((1e6, {"theta": 1e6}, 1e6), (1e5, {}, 5e5)):
        extension = extend(tiny_model("llama-gqa", **_based(own)), method, factor=2.0, **given)
        assert extension.inverse_frequencies()[0][1] == pytest.approx(taken ** (-2 / extension.head_dim))


def test_a_model_that_does_not_do_what_its_configuration_says() -> None:
    model = tiny_llama()
    model.model.rotary_emb.inv_freq.mul_(0.5)
    assert "LlamaRotaryEmbedding" in refusal(model)


def test_a_configuration_with_the_original_length_beside_rope() -> None:
    # transformers prefers Phi-3's own key to the one in rope_parameters, silently.
    model = tiny_model("phi3", original_max_position_embeddings=64)
    extend(model, "longrope", factor=4.0, original_length=32, long_factor=[1.0, 2.0, 3.0, 4.0])
    again = type(model.config).from_dict(model.config.to_dict())
    assert again.rope_parameters["original_max_position_embeddings"] == 32


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("method", ["yarn", "ntk_by_parts", "clex"])
def test_an_extension_keeps_the_mode_of_the_model(method: str, training: bool) -> None:
    """A part in training mode is refused where a model is read."""
    model = tiny_llama().train(training)
    extend(model, method, factor=2.0)
    assert {module.training for module in model.modules()} == {training}


@pytest.mark.parametrize("method", ["yarn_revised", "ntk_by_parts", "eabf", "clex"])
def test_what_transformers_cannot_do_it_refuses_to_load(method, tmp_path, monkeypatch):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    model = tiny_llama()
    extension = extend(model, method, factor=2.0, **({"skip_layers": 1} if method == "eabf" else {}))
    save(model, tmp_path / "m")
    monkeypatch.delitem(ROPE_INIT_FUNCTIONS, extension.custom_rope_type)
    with pytest.raises(KeyError, match=f"lengthwise_{method}"), quiet_transformers():
        AutoModelForCausalLM.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("record", ["none", "another"])
@pytest.mark.parametrize("name", ["llama-gqa", "gemma3-text"])
def test_a_rope_type_of_another_record_is_refused(record: str, name: str, tmp_path: Path) -> None:
    layers = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    model = tiny_model(name, **(layers if name == "gemma3-text" else {}))
    extend(model, "yarn_revised", factor=2.0)
    save(model, tmp_path / "m")
    other = read_extension(model.config).to_dict() | {"method": "ntk_by_parts", "options": {}}
    rewritten(tmp_path / "m", lengthwise_extension=None if record == "none" else other)
    with pytest.raises(UsageError, match=r"lengthwise_yarn_revised.*no record of it"):
        load(str(tmp_path / "m"))


def test_clex_weights_are_found_in_shards_and_missed_when_lost(tmp_path: Path) -> None:
    model = tiny_llama()
    extension = extend(model, "clex", factor=2.0, original_length=64)
    [(_, module)] = clex_modules(model)
    torch.nn.init.normal_(module.frequencies.down, std=0.1)
    with quiet_transformers():
        model.save_pretrained(tmp_path / "m", max_shard_size="40KB")
        tiny_tokenizer().save_pretrained(tmp_path / "m")
    torch.testing.assert_close(logits(load(str(tmp_path / "m")).model), logits(model))
    with quiet_transformers():
        tiny_llama().save_pretrained(tmp_path / "m", max_shard_size="1GB")
    rewritten(tmp_path / "m", lengthwise_extension=extension.to_dict())
    with pytest.raises(MissingError, match=r"model\.rotary_emb\.frequencies"):
        load(str(tmp_path / "m"))


class TestAdapters:
    @staticmethod
    def adapted(model: Any) -> Any:
        wrapped = with_lora(model, modules_to_save=["rotary_emb"] if clex_modules(model) else None)
        for name, parameter in wrapped.named_parameters():
            if parameter.requires_grad and "frequencies.down" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        return wrapped

    @pytest.mark.parametrize("method", [name for name in ROPE_METHODS if ROPE_METHODS[name].learned])
    def test_weights_that_the_adapter_would_not_save_are_refused(self, method: str) -> None:
        wrapped = self.adapted(tiny_llama())
        assert method in refusal(wrapped, method)
        extend(wrapped, "yarn", factor=2.0)

    @pytest.mark.parametrize("method", ["yarn", "clex", "eabf"])
    def test_the_base_model_is_extended_as_the_adapter_needs_it(self, method: str, tmp_path: Path) -> None:
        save_tiny_model(tmp_path / "base")
        model = tiny_llama()
        options: dict[str, Any] = {"skip_layers": 1} if method == "eabf" else {}
        extension = extend(model, method, factor=2.0, original_length=64, **options)
        wrapped = self.adapted(model)
        save(wrapped, tmp_path / "adapter")
        loaded = load(str(tmp_path / "base"), adapter=str(tmp_path / "adapter"))
        assert loaded.extension == extension
        torch.testing.assert_close(logits(loaded.model), logits(wrapped))
        # And on a base that was extended so already.
        plain = tiny_llama()
        extend(plain, method, factor=2.0, original_length=64, **options)
        save(plain, tmp_path / "extended")
        again = load(str(tmp_path / "extended"), adapter=str(tmp_path / "adapter"))
        torch.testing.assert_close(logits(again.model), logits(wrapped))
        assert "Context extension" in (tmp_path / "adapter" / "README.md").read_text()

    def test_on_a_base_with_another_extension(self, tmp_path: Path) -> None:
        model, other = tiny_llama(), tiny_llama()
        extend(model, "yarn", factor=2.0)
        extend(other, "ntk", factor=2.0)
        save(self.adapted(model), tmp_path / "adapter")
        save(other, tmp_path / "base")
        with pytest.raises(UsageError, match="yarn"):
            load(str(tmp_path / "base"), adapter=str(tmp_path / "adapter"))

    def test_a_damaged_record(self, tmp_path: Path) -> None:
        model = tiny_llama()
        extend(model, "yarn", factor=2.0)
        save(self.adapted(model), tmp_path / "adapter")
        (tmp_path / "adapter" / "lengthwise_extension.json").write_text('{"method": "yarn"')
        save_tiny_model(tmp_path / "base")
        with pytest.raises(UsageError):
            load(str(tmp_path / "base"), adapter=str(tmp_path / "adapter"))


class TestTime:
    """CLEX in a model: when t is decided."""

    @staticmethod
    def model() -> Any:
        model = tiny_llama()
        extend(model, "clex", factor=4.0, original_length=32)
        [(_, module)] = clex_modules(model)
        torch.nn.init.normal_(module.frequencies.down, std=0.1)
        return model

    def test_generation_keeps_the_time_of_the_prompt(self) -> None:
        model = self.model()
        text = random_ids(1, 30)
        with_cache = model.generate(input_ids=text, max_new_tokens=8, do_sample=False, pad_token_id=0)
        with fixed_time(model, length=30):
            without = model.generate(
                input_ids=text, max_new_tokens=8, do_sample=False, pad_token_id=0, use_cache=False
            )
        torch.testing.assert_close(with_cache, without)

    def test_the_final_length_can_be_said_before(self) -> None:
        model = self.model()
        text = random_ids(1, 40)
        with torch.no_grad(), fixed_time(model, length=40):
            first = model(input_ids=text[:, :30], use_cache=True)
            second = model(input_ids=text[:, 30:], **{cache_argument(model): cache_among(first)})
        both = torch.cat((first.logits, second.logits), dim=1)
        torch.testing.assert_close(both, logits(model, 40), rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            unsaid = model(input_ids=text[:, :30]).logits
        assert (unsaid - both[:, :30]).abs().max() > 1e-2, "30 tokens alone are plain rope"

    def test_two_caches_at_once_keep_their_own(self) -> None:
        model = self.model()
        long, short = random_ids(1, 70), random_ids(1, 20)
        with torch.no_grad():
            first = model(input_ids=long[:, :-1], use_cache=True)
            model(input_ids=short, use_cache=True)
            found = model(input_ids=long[:, -1:], **{cache_argument(model): cache_among(first)}).logits
        torch.testing.assert_close(found[:, 0], logits(model, 70)[:, -1], rtol=1e-4, atol=1e-4)

    def test_fixing_the_time_of_another_method(self) -> None:
        with pytest.raises(UsageError), fixed_time(tiny_llama(), length=5):
            pass

    def test_a_time_within_another_is_left_for_the_outer_one(self) -> None:
        model = self.model()
        [(_, module)] = clex_modules(model)
        with fixed_time(model, length=100):
            with fixed_time(model, length=64):
                assert module.fixed_time == 2
            assert module.fixed_time == 4
        assert module.fixed_time is None

    @pytest.mark.parametrize("length", [0, -1, 1.5, True, "64", None])
    def test_a_length_that_is_none(self, length: Any) -> None:
        with pytest.raises(UsageError, match="length is"), fixed_time(self.model(), length=length):
            pass


class TestQueryScale:
    def test_the_layers_that_scale(self) -> None:
        for skip in (0, 1):
            model = tiny_llama(num_hidden_layers=2)
            extend(model, "eabf", factor=4.0, original_length=8, skip_layers=skip, theta=10000.0)
            marked = [hasattr(layer.self_attn, "query_scale_length") for layer in model.model.layers]
            assert marked == [skip == 0, True]

    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_against_a_model_whose_last_query_is_longer(self, attention: str) -> None:
        # The last token's query at position 31 with L0 = 8 is longer by ln 32 / ln 8 = 5/3. In a model of one layer
        # only its own output sees that, so weights with a query longer by 5/3 give the same last logits.
        scaled = tiny_llama(num_hidden_layers=1)
        longer = tiny_llama(num_hidden_layers=1)
        extend(scaled, "eabf", factor=4.0, original_length=8, skip_layers=0, theta=10000.0)
        scaled.set_attn_implementation(attention)
        with torch.no_grad():
            longer.model.layers[0].self_attn.q_proj.weight.mul_(5 / 3)
        torch.testing.assert_close(logits(scaled, 32)[:, -1], logits(longer, 32)[:, -1], rtol=1e-4, atol=1e-4)
        plain = logits(tiny_llama(num_hidden_layers=1), 32)
        torch.testing.assert_close(logits(scaled, 32)[:, :8], plain[:, :8])
        assert (logits(scaled, 32)[:, -1] - plain[:, -1]).abs().max() > 0.01


def test_planning_changes_nothing() -> None:
    config = tiny_llama().config
    before = config.to_dict()
    extension = plan_extension(config, "yarn", factor=2.0)
    assert extension.extended_length == 256
    assert config.to_dict() == before


def test_a_model_whose_own_code_fails_is_refused_in_words() -> None:
    model = tiny_llama()
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(3, 3)
    with pytest.raises(UsageError, match="cannot read 6 tokens") as caught:
        extend(model, "yarn", factor=2)
    assert caught.value.expected
    assert caught.value.fix
