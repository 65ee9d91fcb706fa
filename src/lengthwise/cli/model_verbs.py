"""`lengthwise extend` and `lengthwise merge`: a model folder is written."""

from __future__ import annotations

from lengthwise.cli.options import Assignments, DryRun, Model, Printing
from lengthwise.cli.output import print_plan
from lengthwise.errors import UsageError
from lengthwise.settings import Dtype


def extend(
    model: Model,
    *,
    method: str,
    factor: float,
    original_length: int | None = None,
    assignments: Assignments = (),
    out: str | None = None,
    dry_run: DryRun = False,
    printing: Printing,
) -> None:
    """Extend the context of a model with rotary positions.

    No weight changes: the model can be measured at once, or trained further. Its card says what was done.

    Args:
        method: A rope method of `lengthwise ls methods`.
        factor: How many times longer the context becomes.
        original_length: Tokens of context that the model was trained for; default is what its configuration says.
        assignments: An option of the method, as in beta_fast=16; repeat it for several.
        out: Model folder to write: exactly this one.

    Examples:
        lengthwise extend smollm2-135m --method yarn --factor 2 --out models/yarn2
        lengthwise extend ./my-model --method ntk --factor 4 --set alpha=5 --out models/ntk4
        lengthwise extend ./my-model --method llama3 --factor 8 --original-length 8192 --dry-run
    """
    from lengthwise.config import override
    from lengthwise.models.saving import plan_extended, save_extended

    how = {"factor": factor, "original_length": original_length, "options": override({}, assignments)}
    if dry_run:
        print_plan(plan_extended(model, method, **how), printing)
    elif out is None:
        raise UsageError("extending needs a folder to write to", fix="--out models/NAME")
    else:
        print_plan(save_extended(model, method, out, **how), printing, caption="what was done")


def merge(run: str, *, out: str, dtype: Dtype = "float32", printing: Printing) -> None:
    """Merge a run's adapter into its base model and save that.

    A base model in 4 bits is dequantised: the adapter was trained on those weights.

    Args:
        run: The folder of a finished `lengthwise train`.
        out: Model folder to write: exactly this one.
        dtype: float32 is exact; bfloat16 or float16 halve the size.

    Examples:
        lengthwise merge runs/lora --out models/merged
        lengthwise merge runs/longqlora --dtype bfloat16 --out models/longqlora
    """
    from lengthwise.training.merging import merge_run

    print_plan(merge_run(run, out, dtype=dtype), printing, caption="what was done")
