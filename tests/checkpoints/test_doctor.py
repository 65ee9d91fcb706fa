"""Each planted fault is found by its name, and every model that is as its configuration says is left in peace."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import lengthwise
from checks.zoo.architectures import animals, build, made
from lengthwise.checkpoints.doctor import check_rope, examine
from lengthwise.checkpoints.extending import extend
from lengthwise.checkpoints.faults import remarks
from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.positions import ROPE_METHODS
from lengthwise.testing import tiny_llama, tiny_tokenizer
from tests.architectures import TINY_ARCHITECTURES, tiny_model, with_lora
from tests.tiny_ropes import L0, LENGTH, LISTS, ROPES, roped

SCALED = ["linear", "yarn", "llama3"]


def plant(model: Any, donor: Any) -> Any:
    """The model with the frequencies and the scaling of another one, and its own configuration."""
    mine, other = model.model.rotary_emb, donor.model.rotary_emb
    mine.inv_freq = other.inv_freq.clone()
    mine.attention_scaling = other.attention_scaling
    return model


def faults(model: Any, **arguments: Any) -> str:
    with pytest.raises(LengthwiseError) as caught:
        check_rope(model, **arguments)
    assert caught.value.exit_code == 1
    assert caught.value.fix
    return caught.value.problem


DROPPED = "scaling dropped: model.model.rotary_emb.inv_freq has the frequencies of plain rope, base 10,000"
BASES = {500_000.0: "base 500,000", 41_829.36592889948: "base 41,829."}
LENGTHS = [(kind, length) for kind in ("yarn", "llama3") for length in (2048, 4 * L0)]
ROPED = ["default", *SCALED, "longrope"]
# What the configuration says, what the model does, and what is found.
PLANTED: list[tuple[str, str, dict[str, Any], str, str]] = [
    *((kind, "default", {}, DROPPED, f"says {kind} by 4") for kind in SCALED),
    *((kind, kind, {"rope_theta": base}, "wrong base:", BASES[base]) for kind in ROPED for base in BASES),
    ("yarn", "default", {"rope_theta": 1e6}, "scaling dropped, wrong base:", "base 1,000,000"),
    *((kind, kind, {"factor": 3.5}, "wrong factor:", "by 3.5 from") for kind in SCALED),
    *(
        (kind, kind, {next(iter(LENGTH)): n}, "wrong original length:", "tokens, base 10,000;")
        for kind, n in LENGTHS
    ),
    ("yarn", "linear", {}, "another method:", "frequencies of pi by 4 from"),
    ("default", "llama3", {}, "another method:", "frequencies of llama3 by 4 from"),
]
UNSCALED = "attention scaling lost: model.model.rotary_emb.attention_scaling is 1, not 1.13863"
BROKEN: list[tuple[str, Callable[[Any], Any], str]] = [
    ("dynamic", lambda rotary: setattr(rotary, "rope_type", "default"), "scaling dropped:"),
    ("longrope", lambda rotary: setattr(rotary, "rope_type", "default"), "scaling dropped:"),
    ("yarn", lambda rotary: setattr(rotary, "attention_scaling", 1.0), UNSCALED),
    # Values that were not filled, and garbage.
    ("default", lambda rotary: rotary.inv_freq.fill_(0.0), "frequencies of zero:"),
    ("default", lambda rotary: rotary.inv_freq.fill_(float("nan")), "no frequencies:"),
    ("default", lambda rotary: rotary.inv_freq.fill_(-1.0), "no frequencies:"),
    ("llama3", lambda rotary: rotary.to("meta"), "no frequencies:"),
    ("llama3", lambda rotary: rotary.inv_freq.uniform_(), "unknown frequencies:"),
    ("default", lambda rotary: rotary.inv_freq.mul_(1.00002), "inexact frequencies:"),
]


class TestFaults:
    @pytest.mark.parametrize(("kind", "does", "changed", "name", "words"), PLANTED)
    def test_other_frequencies(self, kind: str, does: str, changed: Any, name: str, words: str) -> None:
        found = faults(plant(roped(kind), roped(does, **changed)))
        assert found.startswith(name)
        assert words in found
        # YaRN rounds the ends of its ramp, so other lengths may give the same frequencies.
        assert "length" not in name or "from 4,096 tokens, base 10,000;" not in found

    @pytest.mark.parametrize(("kind", "breaks", "name"), BROKEN)
    def test_broken_modules(self, kind: str, breaks: Callable[[Any], Any], name: str) -> None:
        model = roped(kind)
        breaks(model.model.rotary_emb)
        assert faults(model).startswith(name)

    @pytest.mark.parametrize("kind", ROPES)
    def test_frequencies_rounded(self, kind: str) -> None:
        found = faults(roped(kind).to(torch.bfloat16))
        assert found.startswith("frequencies rounded:")
        assert "position 16,384" in found

    def test_configurations(self) -> None:
        model = roped()
        model.config.rope_parameters = roped("yarn").config.rope_parameters
        assert faults(model).startswith("scaling dropped:")
        # A factor that the type ignores.
        assert faults(roped(factor=4.0)).startswith("scaling dropped:")
        model = plant(roped(), roped(rope_theta=1e6))
        del model.config.max_position_embeddings
        assert faults(model).startswith("wrong base:")

    def test_one_type_of_layer(self) -> None:
        model: Any = tiny_model("gemma3-text", num_hidden_layers=6)
        rotary = model.model.rotary_emb
        rotary.full_attention_inv_freq.copy_(rotary.sliding_attention_inv_freq)
        found = faults(model)
        assert found.startswith("wrong base: model.model.rotary_emb.full_attention_inv_freq")
        assert "\n" not in found

    @pytest.mark.parametrize(
        ("beside", "lost"),
        [
            ({"rope_type": "yarn", "factor": 4.0, **LENGTH}, True),
            ({"factor": 2.0}, True),
            ({"rope_theta": 3e7}, True),
            ({"rope_type": "default"}, False),
        ],
    )
    def test_settings_beside_the_types_of_layers(self, beside: dict[str, Any], lost: bool) -> None:
        model = tiny_model("gemma3-text", num_hidden_layers=6)
        model.config.rope_parameters = {**beside, **model.config.rope_parameters}
        if lost:
            assert faults(model).startswith("scaling dropped: rope_parameters have")
            with pytest.raises(UsageError, match="no layer has them") as caught:
                extend(model, "yarn", factor=2)
            assert caught.value.expected
            assert caught.value.fix
        else:
            check_rope(model)
            extend(model, "yarn", factor=2)
            assert {*model.config.rope_parameters} == {"full_attention", "sliding_attention"}

    def test_an_extension_that_the_configuration_lost(self) -> None:
        model, plain = tiny_llama(), tiny_llama()
        extend(model, "yarn", factor=2.0)
        setattr(plain.config, RECORD, getattr(model.config, RECORD))
        assert faults(plain).startswith("scaling dropped: the model was extended (yarn by 2)")
        model = tiny_llama()
        extend(model, "dynamic_ntk", factor=2.0)
        model.config.max_position_embeddings = 64
        assert faults(model).startswith("wrong original length: the original length is 128")

    @pytest.mark.parametrize("method", ["clex", "eabf"])
    def test_an_extension_that_plain_transformers_loads_in_part(self, method: str, tmp_path: Path) -> None:
        model = tiny_llama()
        extend(model, method, factor=2.0, **({"skip_layers": 1} if method == "eabf" else {}))
        with quiet_transformers():
            save_whole(model, tiny_tokenizer(), tmp_path / "m")
            loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
        assert faults(loaded).startswith("extension not loaded")
        with pytest.raises(UsageError, match="extension not loaded"):
            remarks(loaded, tiny_tokenizer(), source=None)
        assert check_rope(lengthwise.load(str(tmp_path / "m")))["positions"]


class TestNulls:
    @pytest.mark.parametrize("kind", ROPES)
    def test_every_type_of_transformers(self, kind: str) -> None:
        model = roped(kind)
        assert lengthwise.check_rope(model)["faults"] == []
        # The buffers of some types follow the input.
        for length in (8, 3 * L0, 5 * L0, 8):
            position_ids = torch.arange(length)[None]
            model.model.rotary_emb(torch.zeros(1), position_ids)
            assert check_rope(model)["faults"] == []

    @pytest.mark.parametrize("method", ROPE_METHODS)
    @pytest.mark.parametrize("factor", [1.0, 2.0])
    def test_every_method_of_lengthwise(self, method: str, factor: float) -> None:
        model = tiny_llama(head_dim=64, max_position_embeddings=L0)
        options = {"eabf": {"skip_layers": 1}, "longrope": {"long_factor": LISTS["long_factor"]}}
        extend(model, method, factor=factor, **options.get(method, {}))
        assert check_rope(model)["faults"] == []
        assert check_rope(model)["trained_length"] == L0

    @pytest.mark.parametrize("name", TINY_ARCHITECTURES)
    def test_every_architecture(self, name: str) -> None:
        report = check_rope(tiny_model(name))
        table = {"gpt2": 64, "opt": 64, "gptj-bias": 64}.get(name)
        assert report["position_table"] == table
        rope = "ALiBi" if name == "bloom-alibi" else "plain rope, base"
        assert report["positions"][0].startswith("a table of 64 positions" if table else rope)

    @pytest.mark.parametrize("name", ["gemma3-text", "gpt-neox", "mistral", "cohere-scale", "olmo2"])
    def test_extended_architectures(self, name: str) -> None:
        model = tiny_model(
            name, num_hidden_layers=6, **({"sliding_window": 128} if name == "mistral" else {})
        )
        extend(model, "yarn", factor=2.0)
        assert "yarn by 2 from 64 tokens" in check_rope(model)["positions"][-1]

    @pytest.mark.parametrize(
        ("model_type", "head_dim", "rope"),
        [
            ("hunyuan_v1_dense", 64, {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}),
            # A rotated width of 21.
            ("glm4_moe", 42, {"rope_type": "default", "partial_rotary_factor": 0.5}),
        ],
    )
    def test_ropes_of_their_own(self, model_type: str, head_dim: int, rope: dict[str, Any]) -> None:
        sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": head_dim}
        rope = {**rope, "rope_theta": 10_000.0}
        config = AutoConfig.for_model(model_type, **sizes, **heads, rope_parameters=rope)
        with quiet_transformers():
            assert check_rope(AutoModelForCausalLM.from_config(config))["faults"] == []

    def test_layers_with_windows(self) -> None:
        report = check_rope(tiny_model("gemma3-text", num_hidden_layers=6))
        assert report["positions"] == [
            "plain rope, base 10,000, in 5 sliding_attention layers",
            "plain rope, base 1,000,000, in 1 full_attention layers",
        ]
        assert report["sliding_window"] == "16 tokens in 5 layers"
        assert check_rope(tiny_model("mistral"))["sliding_window"] == "16 tokens in 2 layers"

    @pytest.mark.parametrize("name", ["inkling_text", "zaya, half of its layers slide", "gpt_neo"])
    def test_windows_that_are_named_otherwise(self, name: str) -> None:
        animal = next(each for each in animals() if each.name == name)
        assert check_rope(made(animal))["sliding_window"] == "32 tokens in 2 layers"

    @pytest.mark.parametrize("name", ["smollm3", "llama4_text", "cohere2", "afmoe"])
    def test_layers_without_rope(self, name: str, tmp_path: Path) -> None:
        build(next(each for each in animals() if each.name == name), tmp_path / "m")
        report = check_rope(lengthwise.load(str(tmp_path / "m")))
        assert report["positions"][-1] == "none in 2 layers"

    def test_the_model_is_left_as_it_is(self) -> None:
        model = roped("dynamic")
        before = {name: value.clone() for name, value in model.named_buffers()}
        assert check_rope(torch.nn.parallel.DataParallel(model))["faults"] == []
        for name, value in model.named_buffers():
            assert torch.equal(before[name], value), name


# PEFT 0.18 looks for the base model's file while it saves; these bases were made in memory.
@pytest.mark.filterwarnings("ignore:Could not find a config file:UserWarning")
class TestAdapters:
    @staticmethod
    def saved(tmp_path: Path, *, trained: bool = True, method: str | None = None) -> tuple[str, str]:
        """Folders of a plain base model and of an adapter for it."""
        base = tiny_llama()
        save_whole(base, tiny_tokenizer(), tmp_path / "base")
        if method is not None:
            extend(base, method, factor=2.0)
        save_whole(with_lora(base, init_lora_weights=not trained), tiny_tokenizer(), tmp_path / "adapter")
        return str(tmp_path / "base"), str(tmp_path / "adapter")

    def test_a_loaded_one(self, tmp_path: Path) -> None:
        base, adapter = self.saved(tmp_path, method="yarn")
        loaded = lengthwise.load(base, adapter=adapter)
        assert check_rope(loaded)["positions"] == ["yarn by 2 from 128 tokens, base 10,000"]
        report = examine(base, adapter=adapter)
        assert (report["adapter"], report["faults"]) == (adapter, [])

    def test_on_a_base_without_its_extension(self, tmp_path: Path) -> None:
        from peft import PeftModel

        base, adapter = self.saved(tmp_path, method="yarn")
        with quiet_transformers():
            model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
        assert "scaling dropped" in faults(model, adapter=adapter)

    def test_that_was_never_trained(self, tmp_path: Path) -> None:
        base, adapter = self.saved(tmp_path, trained=False)
        assert faults(lengthwise.load(base, adapter=adapter)).startswith("idle adapter: every lora_B is zero")
        assert "changes nothing yet" in str(
            check_rope(with_lora(tiny_llama(), init_lora_weights=True))["notes"]
        )

    @pytest.mark.parametrize("method", ["UniLora", "VBLoRA", "RandLora", "IA3"])
    def test_that_has_no_pair_of_matrices(self, tmp_path: Path, method: str) -> None:
        """UniLoRA has one vector, under a name with "lora_" in it."""
        import peft

        kind = getattr(peft, f"{method}Config")
        sizes = {
            "IA3": {"feedforward_modules": []},
            "VBLoRA": {"vector_length": 8, "num_vectors": 8, "topk": 2},
        }
        config = kind(task_type="CAUSAL_LM", target_modules=["q_proj"], **sizes.get(method, {}))
        base, _ = self.saved(tmp_path)
        with quiet_transformers():
            model = peft.get_peft_model(lengthwise.load(base).model, config)
        for weight in model.parameters():
            weight.data += weight.requires_grad * 0.1
        model.save_pretrained(tmp_path / "trained")
        loaded = lengthwise.load(base, adapter=str(tmp_path / "trained"))
        assert not [remark for remark in loaded.remarks if "idle" in remark]

    # PEFT asks transformers by an older name.
    @pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
    def test_whose_weights_have_other_names(self, tmp_path: Path) -> None:
        from peft import PeftModel
        from safetensors.torch import load_file, save_file

        base, adapter = self.saved(tmp_path)
        file = Path(adapter) / "adapter_model.safetensors"
        save_file({key.replace("q_proj", "query"): each for key, each in load_file(file).items()}, file)
        with pytest.warns(UserWarning, match="missing adapter keys"):
            loaded = PeftModel.from_pretrained(lengthwise.load(base).model, adapter)
        assert faults(loaded, adapter=adapter).startswith("adapter not loaded: 4 of 4 tensors")
        # None at all.
        assert faults(tiny_llama(), adapter="runs/lora").startswith("adapter not loaded:")


@pytest.mark.parametrize("window", [0, -1, 1])
def test_a_window_of_no_tokens(window: int) -> None:
    model = tiny_model("mistral")
    model.config.sliding_window = window
    if window > 0:
        assert check_rope(model)["faults"] == []
    else:
        assert faults(model).startswith(f"impossible window: sliding_window is {window}")


@pytest.mark.parametrize("kind", [kind for kind in ROPES if kind != "proportional"])
def test_frequencies_that_are_kept_for_another_input(kind: str) -> None:
    model = roped(kind)
    check_rope(model)
    # In use are the right ones; a reset brings the others.
    model.model.rotary_emb.original_inv_freq.mul_(1.5)
    assert faults(model).startswith("wrong buffer: model.model.rotary_emb.original_inv_freq has ")
