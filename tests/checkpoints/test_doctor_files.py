"""What is written into a folder and not meant, or not read, is found."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.checkpoints.doctor import check_rope, examine
from lengthwise.checkpoints.position_limits import impossible, rope_by_input_length
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from tests.architectures import tiny_model
from tests.tiny_folders import rewritten, saved, writing
from tests.tiny_ropes import L0, LENGTH, LISTS, ROPES

_PLAIN = {"rope_type": "default", "rope_theta": 1e4}
_DYNAMIC = _PLAIN | {"rope_type": "dynamic", "factor": 4.0}
# What is written into a configuration, the fault, and words of it.
WRITTEN: dict[str, tuple[dict[str, Any], str, str]] = {
    # As a README says that one makes a model of transformers 4 longer: the base becomes 10000, silently.
    "two sections of which one is read": (
        {"rope_parameters": _PLAIN | {"rope_theta": 5e5}, "rope_scaling": {"type": "yarn", "factor": 4.0, **LENGTH}},
        "wrong base", "rope_theta = 500000.0",
    ),
    "a scaling without its type": (
        {"rope_parameters": None, "rope_theta": 1e4, "rope_scaling": {"factor": 4.0}}, "scaling dropped", ""
    ),
    "one base for all frequencies": ({"rope_parameters": _PLAIN | {"rope_theta": 1}}, "impossible settings", ""),
    "rope by type, and a class that has one": (
        {"rope_parameters": {"full_attention": _PLAIN | {"rope_theta": 1e6}}}, "scaling dropped", ""
    ),
    # transformers begins it at max_position_embeddings, which is 128.
    "dynamic scaling from another length": (
        {"rope_parameters": _DYNAMIC | {"original_max_position_embeddings": 64}}, "wrong original length", "is 64"
    ),
    "dynamic scaling and a length at the top": (
        {"rope_parameters": _DYNAMIC, "original_max_position_embeddings": 64}, "wrong original length", "is 64"
    ),
}  # fmt: skip


class TestFolder:
    @pytest.mark.parametrize("config_only", [False, True])
    @pytest.mark.parametrize("case", WRITTEN)
    def test_what_is_written_and_not_meant(self, folder: Path, case: str, config_only: bool) -> None:
        written, fault, words = WRITTEN[case]
        found = examine(rewritten(folder, **written), config_only=config_only)["faults"]
        assert {each["fault"] for each in found} == {fault}
        assert words in found[0]["problem"]

    def test_an_original_length_that_is_a_guess(self, folder: Path) -> None:
        rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}
        report = examine(rewritten(folder, rope_parameters=rope))
        assert report["faults"] == []
        assert "taken is max_position_embeddings, 128" in str(report["notes"])
        report = examine(rewritten(folder, rope_parameters=rope | LENGTH, max_position_embeddings=2 * L0))
        assert "max_position_embeddings = 8192" in str(report["notes"])

    def test_the_same_of_one_type_of_layer(self, tmp_path: Path) -> None:
        layers = ["sliding_attention", "full_attention"]
        folder = saved(tiny_model("gemma3-text", layer_types=layers), tmp_path / "m")
        sliding, full = _PLAIN, _PLAIN | {"rope_type": "yarn", "factor": 2.0, "truncate": True}
        report = examine(rewritten(folder, rope_parameters=dict(zip(layers, (sliding, full), strict=True))))
        assert (report["faults"], report["trained_length"]) == ([], 64)
        assert "taken is max_position_embeddings, 64, in full_attention layers" in str(report["notes"])
        full[next(iter(LENGTH))] = 32
        report = examine(rewritten(folder, rope_parameters=dict(zip(layers, (sliding, full), strict=True))))
        assert (report["faults"], report["notes"], report["trained_length"]) == ([], [], 32)

    def test_a_dynamic_scaling_that_begins_where_it_says(self, folder: Path) -> None:
        rope = _DYNAMIC | {"original_max_position_embeddings": 128}
        assert examine(rewritten(folder, rope_parameters=rope))["faults"] == []

    def test_older_spellings(self, folder: Path) -> None:
        scaling = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, **LENGTH}
        old = {"rope_parameters": None, "rope_theta": 500_000, "rope_scaling": scaling}
        report = examine(rewritten(folder, **old, max_position_embeddings=8 * L0))
        assert report["faults"] == []
        assert report["rope_parameters"]["rope_type"] == "llama3"
        assert report["trained_length"] == L0
        assert report["positions"] == ["llama3 by 8 from 4,096 tokens, base 500,000"]

    def test_the_rest_of_the_report(self, folder: Path) -> None:
        report = examine(str(folder))
        assert report["tied_head"]
        assert report["fused_objective"] == "yes"
        assert (report["bos_token"], report["bos_added"]) == (None, False)
        assert report["verdict"].endswith("plain rope, base 10,000, trained for 128 tokens.")
        assert "not known" in examine(str(folder), config_only=True)["fused_objective"]

    @pytest.mark.parametrize(
        ("begins", "declared", "wrong"), [(1, True, False), (0, True, True), (2, None, True)]
    )
    def test_bos(self, folder: Path, begins: int, declared: bool | None, wrong: bool) -> None:
        tokenizer = writing("<|begin|> " * begins + "$A")
        tokenizer.save_pretrained(folder)
        if declared is not None:
            rewritten(folder, "tokenizer_config.json", add_bos_token=declared)
        report = examine(rewritten(folder, bos_token_id=tokenizer.bos_token_id), config_only=True)
        assert report["bos_added"] == bool(begins)
        assert [each["fault"] for each in report["faults"]] == ["wrong BOS"] * wrong

    @pytest.mark.parametrize("single", ["<|end|> $A", "<|end|> <|begin|> $A", "<|begin|> <|end|> $A"])
    def test_a_beginning_that_is_no_bos(self, folder: Path, single: str) -> None:
        tokenizer = writing(single)
        tokenizer.save_pretrained(folder)
        report = examine(rewritten(folder, bos_token_id=tokenizer.bos_token_id), config_only=True)
        assert report["bos_added"] == single.startswith("<|begin|>")
        assert single.removesuffix(" $A").replace(" ", "") in "".join(report["notes"])

    @pytest.mark.parametrize("number", [65504.0, None])
    def test_logits_that_are_no_numbers(self, number: float | None, tmp_path: Path) -> None:
        model = tiny_llama(tie_word_embeddings=False)
        with torch.no_grad():
            # The largest of float16: sums of its products are infinite there.
            model.lm_head.weight[3] = 0 if number is None else number
        faults = examine(str(saved(model.half(), tmp_path / "m")))["faults"]
        assert [each["fault"] for each in faults] == ["logits that are no numbers"] * (number is not None)

    def test_an_adapter_needs_its_model(self, folder: Path) -> None:
        with pytest.raises(UsageError):
            examine(str(folder), adapter="runs/lora", config_only=True)


@pytest.mark.parametrize(
    ("rope", "problem"),
    [
        ({"rope_type": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 1.0}, "high_freq_factor = 1"),
        # As Llama 4 Scout has it.
        ({"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 1.0}, None),
        ({"rope_type": "yarn", "beta_fast": 2.0, "beta_slow": 2.0}, "is not above"),
        ({"rope_type": "yarn", "beta_fast": 1.0, "beta_slow": 32.0}, "beta_fast = 1"),
        ({"rope_type": "linear", "factor": 0.5}, "shrinks"),
        ({"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}, None),
        ({"rope_type": "yarn"}, None),
    ],
    ids=str,
)
def test_settings_that_no_method_can_mean(rope: dict[str, object], problem: str | None) -> None:
    found = impossible({"factor": 8.0, "rope_theta": 1e4, "original_max_position_embeddings": 256, **rope})
    assert (problem is None) == (found is None)
    assert problem is None or problem in str(found)


_YARN = {"rope_type": "yarn", "factor": 4.0, **LENGTH}
_LLAMA3 = {"rope_type": "llama3", **ROPES["llama3"]}
# Model type, its rope, and the keys that have no effect.
KEYS: list[tuple[str, dict[str, Any], str]] = [
    *(("llama", {"rope_type": kind, **rope}, "") for kind, rope in ROPES.items() if kind != "proportional"),
    ("llama", _YARN | {"attn_factor": 0.878}, "attn_factor = 0.878"),
    ("llama", _YARN | {"betafast": 64}, "betafast = 64"),
    ("llama", _YARN | {"beta_fast": 64, "beta_slow": 2, "truncate": False, "attention_factor": 1.2}, ""),
    ("llama", _YARN | {"mscale": 0.707}, "mscale = 0.707"),
    ("llama", _YARN | {"mscale": 0.707, "mscale_all_dim": 1.0}, ""),
    (
        "llama",
        _YARN | {"mscale": 0.707, "mscale_all_dim": 1.0, "attention_factor": 1.2},
        "mscale = 0.707 mscale_all_dim",
    ),
    ("llama", _LLAMA3 | {"beta_fast": 16}, "beta_fast = 16"),
    ("llama", {"rope_type": "linear", "factor": 4.0, **LENGTH}, ""),
    # Keys that only these models' own code reads.
    ("deepseek_v3", _YARN | {"mscale_all_dim": 0.7}, ""),
    ("ministral3", _YARN | {"llama_4_scaling_beta": 0.1}, ""),
    ("hunyuan_v1_dense", {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, ""),
    ("llama", {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "alpha = 1000"),
    ("phimoe", {"rope_type": "longrope", **LISTS, **LENGTH, "short_mscale": 1.2, "long_mscale": 1.2}, ""),
    (
        "qwen3_5_text",
        {"mrope_section": [4, 2, 2], "mrope_interleaved": True, "partial_rotary_factor": 0.25},
        "",
    ),
]
_SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4 * L0, "pad_token_id": None,
}  # fmt: skip
_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64, "v_head_dim": 32,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip


@pytest.mark.parametrize(("model_type", "rope", "unread"), KEYS, ids=str)
def test_keys_that_no_class_reads_are_named(model_type: str, rope: dict[str, Any], unread: str) -> None:
    rope = {"rope_type": "default", "rope_theta": 10_000.0} | rope
    sizes = _SMALL | (_EXPERTS if model_type in ("deepseek_v3", "phimoe") else {})
    if model_type == "phimoe":
        sizes |= {"hidden_size": 128, "original_max_position_embeddings": L0}
    if model_type == "qwen3_5_text":
        sizes |= {"layer_types": ["full_attention"]}
    with quiet_transformers():
        config = AutoConfig.for_model(model_type, **sizes, rope_parameters=rope)
        report = check_rope(AutoModelForCausalLM.from_config(config))
    found = [note for note in report["notes"] if "without effect" in note]
    assert len(found) == bool(unread)
    assert all(word in str(found) for word in unread.split())


@pytest.mark.parametrize(
    ("model_type", "rope", "by_length"),
    [
        ("hunyuan_v1_dense", {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, None),
        ("llama", {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "dynamic"),
        ("llama", {"rope_type": "longrope", **LENGTH, **LISTS}, "longrope"),
        ("llama", {"rope_type": "longrope", **LENGTH, **dict.fromkeys(LISTS, [1.5] * 32)}, None),
        *(("llama", {"rope_type": kind, **ROPES[kind]}, None) for kind in ("default", "linear", "yarn")),
    ],
    ids=str,
)
def test_what_is_one_for_all_lengths(model_type: str, rope: dict[str, Any], by_length: str | None) -> None:
    with quiet_transformers():
        config = AutoConfig.for_model(model_type, **_SMALL, rope_parameters=rope | {"rope_theta": 1e4})
        model = AutoModelForCausalLM.from_config(config).eval()
    assert rope_by_input_length(config) == by_length
    # The oracle: what the rotary module gives for the same positions in a short and a long input.
    rotary = model.model.rotary_emb
    cos = [rotary(torch.ones(1), torch.arange(n)[None])[0][0, 100:200] for n in (200, 5 * L0)]
    assert cos[0].equal(cos[1]) == (by_length is None)


def test_the_first_files_of_phi_3(folder: Path) -> None:
    rope = {"type": "su", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    with pytest.raises(UsageError) as caught:
        examine(
            rewritten(folder, model_type="phi3", rope_parameters=None, rope_scaling=rope), config_only=True
        )
    assert "longrope for su" in str(caught.value.fix)
