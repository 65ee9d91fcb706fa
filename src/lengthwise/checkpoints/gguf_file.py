"""What a GGUF file says of its model, in the words of a transformers configuration: transformers reads less of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from torch import Tensor

from lengthwise.checkpoints.gguf_tokenizer import unlike_its_keys
from lengthwise.checkpoints.position_limits import LENGTH, frequency_names, ropes
from lengthwise.checkpoints.rope_check import rope_faults, rotaries
from lengthwise.errors import UsageError, shown
from lengthwise.positions.rope import Rope, llama3, plain_frequencies

_KEYS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("gguf_keys.json").read_bytes())
"""Key, without the architecture -> its names in configurations, and the values that change nothing.

These are null where every value is fine: nothing changes, no tensor would fit, or `_rope_settings` reads it. A key
with another value is refused where the configuration has none of its names.
"""
_NEEDED = "context_length", "embedding_length", "block_count"
"""Keys without which a reader fails, or makes something up."""
_MADE_UP = "attention.head_count", "attention.head_count_kv", "attention.sliding_window"
"""The same where the class has such a setting: transformers takes its default, or leaves the rows of queries and
keys in llama.cpp's order; llama.cpp has other defaults."""
DIVISORS = _FREQS, _SHORT, _LONG = (
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
)
"""The tensors that divide frequencies; no module has them."""

ANOTHER_WAY = "llama.cpp:{path} instead, or the checkpoint that the file was made from"


@dataclass(frozen=True)
class GgufFile:
    """The keys and the tensors of a file."""

    path: Path
    architecture: str
    keys: Mapping[str, Any]
    """Those of the architecture, without its name."""
    tokenizer: Mapping[str, Any]
    sizes: Mapping[str, int]
    """Tensor -> how many numbers it has."""
    divisors: Mapping[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> GgufFile:
        """Raises what the reader raises of a damaged file; UsageError if it lacks a key or its tokenizer."""
        reader = GGUFReader(path)
        if (parts := reader.fields.get("split.count")) and (count := parts.contents()) > 1:
            first = path.with_name(re.sub(r"\d{5}(-of-\d{5}\.gguf)$", r"00001\1", path.name))
            raise _refused(first, f"it is in {count} parts, which llama-gguf-split --merge makes one")
        architecture = reader.fields["general.architecture"].contents()
        needed = (
            *(f"{architecture}.{key}" for key in _NEEDED),
            "tokenizer.ggml.model",
            "tokenizer.ggml.tokens",
        )
        if lacks := [key for key in needed if key not in reader.fields]:
            raise _refused(path, f"it lacks {', '.join(lacks)}")
        # Texts of the vocabulary are many, and transformers reads them.
        keys = {
            name: field.contents()
            for name, field in reader.fields.items()
            if not name.startswith("tokenizer.") or len(field.data) == 1
        }

        def beginning(*begins: str) -> dict[str, Any]:
            return {
                name.removeprefix(begins[0]): value for name, value in keys.items() if name.startswith(begins)
            }

        return cls(
            path,
            architecture,
            beginning(f"{architecture}."),
            beginning("tokenizer.ggml."),
            {tensor.name: int(tensor.n_elements) for tensor in reader.tensors},
            {
                tensor.name: torch.tensor(tensor.data.tolist(), dtype=torch.float64)
                for tensor in reader.tensors
                if tensor.name in DIVISORS
            },
        )

    def refused(self, problem: str) -> UsageError:
        """The error for a file that transformers would read as another model."""
        return _refused(self.path, problem)

    def configured(self, config: Any) -> Any:
        """The configuration that transformers reads from the file, with what it passes over.

        UsageError if the configuration cannot say something that changes numbers.
        """
        passed_over = {
            config.attribute_map.get(name, name): value
            for name, value in self.settings(config).items()
            if not _same(_of(config, name), value)
        }
        made = type(config).from_dict(config.to_dict() | passed_over)
        if differ := self.unlike(made):
            raise self.refused("; ".join(differ))
        return made

    def unlike(self, config: Any) -> list[str]:
        """In words, each setting of the file that a configuration has otherwise."""
        return [
            f"the file has {name} = {shown(value)}, and the model {shown(_of(config, name))}"
            for name, value in self.settings(config).items()
            if not _same(_of(config, name), value)
        ]

    def settings(self, config: Any) -> dict[str, Any]:
        """Names of a configuration, and the values that the file gives them.

        UsageError if the configuration has no name for something that changes numbers.
        """
        keys, lost = self.keys, list[str]()
        heads = keys.get("attention.head_count")
        width = keys.get("attention.key_length") or (keys["embedding_length"] // heads if heads else 0)
        implied = {
            "attention.head_count_kv": (heads,),
            "attention.key_length": (width,),
            "attention.value_length": (width,),
            "context_length": (keys["context_length"],),
            "rope.scaling.yarn_attn_factor": (0.1 * math.log(keys.get("rope.scaling.factor") or 1.0) + 1,),
        }
        found: dict[str, Any] = {
            "max_position_embeddings": keys["context_length"],
            "tie_word_embeddings": "output.weight" not in self.sizes,
        }
        for key in _MADE_UP:
            if key not in keys and any(getattr(config, name, None) for name in _KEYS[key]["names"]):
                lost.append(f"a file without {key}")
        if not any(key.endswith("epsilon") for key in keys):
            lost.append("a file without the epsilon of its norms")
        for key, given in keys.items():
            value = self._of_layers(key, given)
            names, neutral = _KEYS.get(key, {"names": (), "neutral": ()}).values()
            if name := next((each for each in names if hasattr(config, each)), None):
                found[name] = value
            elif neutral is not None:
                fits = any(_same(value, each) for each in (*neutral, *implied.get(key, ())))
                lost += [] if fits else [f"{key} = {shown(given)}"]
        if "sliding_window" in found:
            found["sliding_window"] = found["sliding_window"] or None
        if hasattr(config, "query_pre_attn_scalar"):
            # No key has it; llama.cpp knows Gemma's largest models by their layers.
            largest = (config.model_type, keys["block_count"]) in (("gemma2", 46), ("gemma3_text", 62))
            found["query_pre_attn_scalar"] = keys["embedding_length"] // heads if largest else width
        found |= _rope_settings(keys, self.divisors, config, width, lost)
        if lost:
            raise self.refused(f"transformers does not read {', '.join(lost)}")
        return found

    def _of_layers(self, key: str, given: Any) -> Any:
        """One value for all layers if they agree; layers without attention have 0 heads."""
        layers = given if isinstance(given, list) else [given]
        if key == "attention.sliding_window_pattern":
            # A number n: each n-th layer has no window.
            if not isinstance(given, list):
                layers = [number % given for number in range(1, self.keys["block_count"] + 1)]
            return ["sliding_attention" if slides else "full_attention" for slides in layers]
        differ = {each for each in layers if each or "head_count" not in key}
        return differ.pop() if len(differ) == 1 else given

    def check_loaded(self, model: Any, missing: list[str], tokenizer: Any) -> None:
        """Raise UsageError unless each tensor has its place, and rope and tokenizer do what the file says."""
        if missing:
            raise self.refused(f"it has no weights for {shown(', '.join(missing))}")
        layers = model.config.num_hidden_layers
        beside = tuple(f"blk.{layers + more}." for more in range(self.keys.get("nextn_predict_layers", 0)))
        given = sum(size for name, size in self.sizes.items() if not name.startswith((*beside, *DIVISORS)))
        held = sum({each.data_ptr(): each.numel() for each in model.state_dict().values()}.values())
        if given != held:
            raise self.refused(f"its tensors have {given:,} numbers, and the model has a place for {held:,}")
        problems = [each["problem"] for each in rope_faults(model)]
        for path, rotary, layer_type in rotaries(model):
            has = 2 * len(getattr(rotary, frequency_names(layer_type)[0]))
            if self.keys.get("rope.dimension_count", has) != has:
                problems.append(
                    f"{path} rotates {has} dimensions of a head, not {self.keys['rope.dimension_count']}"
                )
        problems += unlike_its_keys(tokenizer, self.tokenizer)
        if problems:
            raise self.refused("; ".join(problems))


def _refused(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path} cannot be converted: {problem}",
        expected="a file of which transformers can compute all that it says",
        fix=ANOTHER_WAY.format(path=path),
    )


def _of(config: Any, name: str) -> Any:
    """A value of the configuration; a window of 0 tokens is none, as llama.cpp reads it."""
    value = getattr(config, name, None)
    return value or None if name == "sliding_window" else value


def _same(has: Any, wanted: Any) -> bool:
    """Equal, up to float32, in all that is wanted."""
    if isinstance(wanted, Mapping):
        return isinstance(has, Mapping) and all(_same(has.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(has, list) and len(has) == len(wanted) and all(map(_same, has, wanted))
    numbers = isinstance(wanted, float) and isinstance(has, float | int)
    return math.isclose(has, wanted, rel_tol=1e-6) if numbers else has == wanted


def _rope_settings(
    keys: Mapping[str, Any], divisors: Mapping[str, Tensor], config: Any, width: int, lost: list[str]
) -> dict[str, Any]:
    """`rope_parameters` and what a configuration repeats of them; what it cannot say is added to `lost`.

    `keys` are without the architecture, `divisors` tensors that divide frequencies; `config` is what transformers
    made of the file, `width` is d, of a head.
    """
    by_layer = ropes(config)
    # llama.cpp scales the layers without a window alone.
    own = by_layer.get("full_attention", by_layer.get(None))
    if own is None:
        scaled = [key for key in keys if key in ("rope.scaling.factor", "rope.scale_linear")]
        lost += [*divisors, *scaled]
        return {}
    sections = [each for each in keys.get("rope.dimension_sections", ()) if each]
    if sections and sections != own.get("mrope_section"):
        lost.append(f"rope.dimension_sections = {sections}")
    # llama.cpp's, where a file has none: classes have others.
    theta = keys.get("rope.freq_base", 10_000.0)
    rotated = int(width * own.get("partial_rotary_factor", 1.0))
    made = {key: value for key, value in own.items() if key.startswith(("mrope", "partial"))}
    if (dimensions := keys.get("rope.dimension_count", rotated)) != rotated:
        made["partial_rotary_factor"] = dimensions / width
    scaling = _scaling(keys, divisors, theta, dimensions)
    if scaling is None:
        scaled = {key: value for key, value in keys.items() if key.startswith("rope.scal")}
        lost.append(f"this scaling of rope: {[*divisors, scaled]}")
        scaling = {"rope_type": "default"}
    if own.get("rope_type") == scaling["rope_type"] and "truncate" in own:
        # Of GPT-OSS: no key has it.
        made["truncate"] = own["truncate"]
    made |= {"rope_theta": theta} | scaling
    repeated = {LENGTH: made[LENGTH]} if hasattr(config, LENGTH) and LENGTH in made else {}
    if None in by_layer:
        return {"rope_parameters": made, **repeated}
    local = by_layer.get("sliding_attention", {})
    local = local | {"rope_theta": keys.get("rope.freq_base_swa", local.get("rope_theta"))}
    return {"rope_parameters": by_layer | {"full_attention": made, "sliding_attention": local}, **repeated}


def _scaling(
    keys: Mapping[str, Any], divisors: Mapping[str, Tensor], theta: float, dimensions: int
) -> dict[str, Any] | None:
    """The part of `rope_parameters` that scales; None if transformers has no such scaling."""
    # Divisors of 1 change nothing.
    if _FREQS in divisors and bool((divisors[_FREQS] == 1).all()):
        divisors = {name: each for name, each in divisors.items() if name != _FREQS}
    own = {name.removeprefix("rope.scaling."): value for name, value in keys.items()}
    kind, factor = own.get("type", "linear"), own.get("factor") or own.get("rope.scale_linear") or 1.0
    length = {LENGTH: own.get("original_context_length") or keys["context_length"]}
    attention = own.get("attn_factor", 1.0)
    if {*divisors} == {_SHORT, _LONG} and factor == 1:
        lists = {"short_factor": divisors[_SHORT].tolist(), "long_factor": divisors[_LONG].tolist()}
        return {"rope_type": "longrope", **lists, **length, "attention_factor": attention}
    if {*divisors} == {_FREQS} and factor == attention == 1:
        return _llama3(divisors[_FREQS], theta, dimensions)
    if divisors or kind not in ("none", "linear", "yarn"):
        return None
    if kind == "yarn" and factor != 1:
        ends = {"beta_fast": own.get("yarn_beta_fast"), "beta_slow": own.get("yarn_beta_slow")}
        given = {name: value for name, value in ends.items() if value is not None}
        if attention != 1:
            given["attention_factor"] = attention * (0.1 * math.log(factor) + 1)
        return {"rope_type": "yarn", "factor": factor, **length, **given}
    if attention != 1:
        return None
    return (
        {"rope_type": "linear", "factor": factor}
        if kind == "linear" and factor != 1
        else {"rope_type": "default"}
    )


def _llama3(divisors: Tensor, theta: float, dimensions: int) -> dict[str, Any] | None:
    """The settings of Llama 3.1's scaling that divide frequencies so; None if it is another one.

    The file does not keep them. Many give the same divisors: taken are those with Meta's factors 1 and 4.
    """
    low, high, factor, plain = 1.0, 4.0, float(divisors.max()), plain_frequencies(theta, dimensions)
    if factor <= 1 or divisors.shape != plain.shape:
        return None
    fast = (factor / divisors - 1) / (factor - 1)
    between = (fast > 1e-3) & (fast < 1 - 1e-3)
    if not between.any():
        return None
    # `fast` is (r - low) / (high - low) for a frequency that turns r times over the original length.
    length = round(float((2 * math.pi * (low + fast * (high - low)) / plain)[between].median()))
    made = llama3(Rope(theta, dimensions, length, factor), low_freq_factor=low, high_freq_factor=high)
    return made.config if torch.allclose(made.frequencies, plain / divisors, rtol=1e-5, atol=0) else None
