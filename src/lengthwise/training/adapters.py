"""A recipe's adapter: its PEFT configuration, and the model that wears it. Torch loads on first use."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Self

from pydantic import ConfigDict, model_validator

from lengthwise.errors import UsageError, nearest, reason
from lengthwise.settings import Settings

if TYPE_CHECKING:
    from peft import PeftConfig
    from torch import nn

# Our defaults where PEFT's own depend on the model's architecture or are lower.
_LORA = {"lora_alpha": 16, "target_modules": "all-linear"}
# PEFT takes options of any type, and fails with whatever they lead to.
_FAILURES = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


class Adapter(Settings):
    """Train an adapter of PEFT instead of the weights. The other keys are fields of its configuration class.

    Of LoRA (Hu et al., ICLR 2022) these are `r` (default 8), `lora_alpha` (16; the update is scaled by lora_alpha /
    r), `lora_dropout` (0; it is drawn for each view separately, which adds to their disagreement), `target_modules`
    (all-linear: every linear layer but the head), `use_dora` and so on. In `modules_to_save`, the names of modules
    that are trained whole, "embeddings" and "norms" are all of the model's token embeddings (with a head that is
    tied to them) and norms.
    """

    model_config = ConfigDict(extra="allow")

    config: str = "LoraConfig"
    """The class: LoraConfig, IA3Config, AdaptionPromptConfig, ..."""

    # Frozen settings hash their fields alone, and PEFT's options are no fields.
    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def options(self) -> dict[str, Any]:
        """The fields of the configuration class."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.peft_config()
        return self

    def peft_config(self) -> PeftConfig:
        """The configuration.

        Raises:
            UsageError: PEFT has no such class, refuses the options, or its schedule would never run.
        """
        from lengthwise.models.resolve import quiet_transformers

        with quiet_transformers():
            import peft
        kind = getattr(peft, self.config, None)
        if not (inspect.isclass(kind) and issubclass(kind, peft.PeftConfig)):
            names = [name for name in vars(peft) if name.endswith("Config")]
            raise UsageError(f"peft has no {self.config}", expected=nearest(self.config, names))
        # Their schedules run only through calls after each step that neither the Trainer nor we make.
        if self.config == "AdaLoraConfig" or (self.config == "AdamssConfig" and self.options.get("use_asa")):
            raise UsageError(
                f"config = {self.config}: its schedule of ranks would never run",
                expected="LoraConfig or another method without a schedule",
            )
        for name, value in self.options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} = {value}", expected="a finite number")
        defaults = {"task_type": "CAUSAL_LM", **(_LORA if self.config == "LoraConfig" else {})}
        try:
            return kind(**defaults | self.options)
        except _FAILURES as error:
            raise UsageError(f"{self.config} refuses its options: {reason(error)}") from error


def add_adapter(model: Any, adapter: Adapter | None) -> Any:
    """The model with fresh adapters in float32 and all else frozen; with None, the model itself, all trainable.

    The learned part of an extension is trained whole and saved with the adapter.

    Raises:
        UsageError: the method does not fit the model, or names layers that the model does not have.
    """
    if adapter is None:
        return model.requires_grad_(True)
    import torch
    from peft import get_peft_model

    from lengthwise.models.resolve import quiet_transformers

    config = adapter.peft_config()
    _save_whole_modules(config, model)
    try:
        with quiet_transformers():
            adapted = get_peft_model(model, config)
    except _FAILURES as error:
        raise UsageError(f"{adapter.config} does not fit the model: {reason(error)}") from error
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()
    return adapted


def _save_whole_modules(config: Any, model: nn.Module) -> None:
    """Name the modules of this model that are trained and saved whole: those asked for, and a learned extension's.

    Raises:
        UsageError: the model has no such module, or the method saves no whole modules.
    """
    from lengthwise.models.extending import clex_modules
    from lengthwise.models.hidden import unwrap

    learned = {_last(name) for name, _ in clex_modules(model)}
    if not hasattr(config, "modules_to_save"):
        if learned:
            raise UsageError(
                f"{type(config).__name__} saves no whole modules, so {', '.join(learned)} of the extension could not "
                "be trained with it",
                expected="a LoRA, or another extension",
            )
        return
    base: Any = unwrap(model)
    embeddings = base.get_input_embeddings()
    named = [(_last(name), module) for name, module in base.named_modules() if name]
    known = {name: {name} for name, _ in named}
    known["embeddings"] = {name for name, module in named if module is embeddings}
    known["norms"] = {
        name
        for name, module in named
        if "norm" in type(module).__name__.lower() and [*module.parameters(recurse=False)]
    }
    wanted: list[str] = list(config.modules_to_save or [])
    for name in wanted:
        if name not in known and _last(name) not in known:
            raise UsageError(
                f"adapter.modules_to_save names {name!r}, which the model does not have",
                expected=nearest(name, known),
            )
    config.modules_to_save = sorted(learned.union(*(known.get(name, {name}) for name in wanted))) or None
    head = getattr(base.get_output_embeddings(), "weight", None)
    if "embeddings" in wanted and embeddings.weight is head:
        # A head that is tied to the embedding stays tied.
        config.ensure_weight_tying = True


def _last(name: str) -> str:
    return name.rpartition(".")[2]
