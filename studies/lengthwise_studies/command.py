"""`lengthwise reproduce`: a study as one command, ending in a page."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Output
from lengthwise.cli.output import print_table
from lengthwise.errors import UsageError

_SCALES = (
    "The size: default; laptop, which is smaller for some studies of sparsity and the same otherwise; or smoke, "
    "which takes seconds and proves nothing. The paper's tables have laptop-smollm2, laptop-gemma3, gpu, paper too."
)


def reproduce(
    study: str,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    scale: Annotated[str, Parameter(help=_SCALES)] = "default",
    jobs: int | None = None,
    ray: Annotated[str | None, Parameter(metavar="ADDRESS")] = None,
    output: Output,
) -> None:
    """Run a study and write its page.

    Our numbers with their intervals, and the verdict on every claim that they can decide.

    Args:
        study: A name from `lengthwise ls studies`.
        seeds: Seeds: trainings of every arm or configuration.
        steps: Training steps.
        jobs: Train and measure so many arms and seeds at once, in processes that share the cores.
        ray: Train and measure arms and seeds as Ray tasks: local, auto (a running cluster) or HOST:PORT.

    Examples:
        lengthwise reproduce demo --out runs/demo
        lengthwise reproduce tiny-books --seeds 3 --out runs/tiny-books
        lengthwise reproduce figure1 --out runs/figure1 --resume
        lengthwise reproduce tiny-books --seeds 3 --jobs 2 --out runs/tiny-books
        lengthwise reproduce section3 --scale smoke --out runs/smoke
        lengthwise reproduce table4 --scale paper --dry-run
    """
    from lengthwise.files import named_path
    from lengthwise_studies.study_table import plan_study, produce

    size: dict[str, Any] = {"scale": scale, "seeds": seeds, "steps": steps}
    if output.dry_run:
        if jobs is not None or ray is not None:
            raise UsageError(
                "--dry-run tells what a run in sequence costs, with every arm trained",
                fix="leave --jobs and --ray out",
            )
        print_table(plan_study(study, **size))
        return
    if output.out is None:
        raise UsageError("a study needs a folder to write to", fix="--out runs/NAME")
    out = named_path(output.out, what="--out")
    how: dict[str, Any] = {"resume": output.resume, "overwrite": output.overwrite, "ray": ray, "jobs": jobs}
    produced = produce(study, out, **how, **size)
    for table in produced.tables:
        print_table(table)
    print(f"the page: {produced.page}")
