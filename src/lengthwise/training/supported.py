"""What a Trainer can do that the objective cannot be trained with, and a model that cannot be trained."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from accelerate import Accelerator
from torch import nn

from lengthwise.checkpoints.hidden import running, unwrap
from lengthwise.errors import UsageError


def check_supported(trainer: Any) -> None:
    """Refuse what hides the output head from gradients, shares batches, or changes another loss."""
    args, config = trainer.args, getattr(trainer.model, "config", None)
    # A model of text and images may have it in the configuration of its text.
    text: Any = getattr(config, "get_text_config", lambda: None)()
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    sharing = trainer.get_tp_size() * trainer.get_cp_size() * trainer.get_sp_size() > 1
    no_such_term = "training without it: the objective has no such term"
    for given, what, expected in (
        # The Trainer would train one step.
        (args.max_steps == 0, "max_steps=0", "a number of steps, or -1 for num_train_epochs"),
        (args.n_gpu > 1, f"{args.n_gpu} GPUs in one process", "torchrun: one process for each GPU"),
        (plugin is not None and plugin.fsdp_version == 1, "FSDP1", 'FSDP2: fsdp_config={"version": 2}'),
        (trainer.is_deepspeed_enabled, "DeepSpeed", "FSDP2, or whole copies of the model"),
        (sharing, "tensor, context or sequence parallel", "processes with different batches: DDP, FSDP2"),
        (
            trainer.accelerator.dataloader_config.dispatch_batches,
            "dispatch_batches=True",
            "processes that read their own batches",
        ),
        (trainer.model_init is not None, "model_init", "a model: its output head is found once"),
        (args.label_smoothing_factor > 0, "label_smoothing_factor", no_such_term),
        (trainer.compute_loss_func is not None, "compute_loss_func", no_such_term),
        (trainer.compute_metrics is not None, "compute_metrics", "MeasureCallback: no logits are kept"),
        (
            trainer.preprocess_logits_for_metrics is not None,
            "preprocess_logits_for_metrics",
            "no logits are kept",
        ),
        (
            args.label_names is not None and "labels" not in args.label_names,
            f"label_names={args.label_names}",
            "None: batches have labels",
        ),
        (getattr(args, "loss_type", None) == "dft", "loss_type='dft'", no_such_term),
        (
            any(getattr(each, "output_router_logits", False) for each in (config, text)),
            "output_router_logits",
            "False, in TRL by router_aux_loss_coef=0.0: the objective has no such term",
        ),
    ):
        if given:
            raise UsageError(f"the objective cannot be trained with {what}", expected=expected)


def trained_pass(
    model: nn.Module, inputs: dict[str, Any], accelerator: Accelerator
) -> AbstractContextManager[None]:
    """A forward pass of the objective: UsageError where it fails in the model's own code (`running`).

    Some code reads texts and cannot be trained: DBRX under autocast, Gemma 3n with 4-bit weights.
    """
    precision = {"no": "float32"}.get(accelerator.mixed_precision, accelerator.mixed_precision)
    return running(
        f"a {type(unwrap(model)).__name__}",
        inputs["input_ids"].numel(),
        through=f" in a step of training in {precision}",
        expected="a model whose own code can be trained so",
        fix="precision float32, no 4-bit weights, or another model",
    )
