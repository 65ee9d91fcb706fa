"""The verb of a measurement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Output, Printing, with_fields
from lengthwise.cli.output import fail_above, print_plan, show
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Measurement
from lengthwise.settings import Subject

_FAIL_ABOVE = Parameter(
    "--fail-above", help="Exit with 4 if at any length the value (not its interval) is above this."
)


def command(kind: type[Measurement]) -> Callable[..., None]:
    """The function of the verb, with an option for each field of the measurement."""

    def verb(
        subject: Subject, measurement: Any, *, output: Output, printing: Printing, threshold: Any = None
    ) -> None:
        if threshold is not None and not math.isfinite(threshold):
            raise UsageError(f"--fail-above is {threshold}", expected="a finite number")
        if output.dry_run:
            from lengthwise.measure.dry_run import plan_run

            print_plan(plan_run(measurement, subject), printing)
            return
        from lengthwise.measure.runner import run

        folder = {"out": output.out, "resume": output.resume, "overwrite": output.overwrite}
        results = show(lambda: run(measurement, subject, **folder), output.out, printing)
        if kind.fail_above is not None and threshold is not None:
            fail_above(results, kind.fail_above, threshold)

    verb.__doc__ = kind.__doc__
    verb.__annotations__ = {
        "subject": Subject,
        "measurement": kind,
        "output": Output,
        "printing": Printing,
        "threshold": Annotated[float | None, _FAIL_ABOVE],
    }
    unused = () if kind.fail_above else ("threshold",)
    return with_fields(verb, hidden=(*kind.not_of_the_run, *unused))
