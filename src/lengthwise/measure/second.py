"""The second model of a measurement: an evaluator, a selector, or the other side of a comparison.

`About.second` is the field that says what it is: the name of a model, which is loaded as the first one is, or a side
of its own, with the fields of a `Subject`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.settings import TAKEN_BY, Subject, checked

if TYPE_CHECKING:
    from lengthwise.measure.measurement import Measurement
    from lengthwise.subjects import Predictor


def second_subject(measurement: Measurement, subject: Subject) -> Subject | None:
    """How the second model is loaded, beside the first as `subject` says; None where the settings name none.

    Raises:
        UsageError: a setting of the second side that no model of its kind takes.
    """
    name = measurement.about.second
    named: Any = None if name is None else getattr(measurement, name)
    if not named:
        return None
    if isinstance(named, str):
        return subject.beside(named)
    given = {"text": subject.text, "split": subject.split, **named}
    return checked(Subject, given, source="the second side")


def open_second(measurement: Measurement, model: Predictor, subject: Subject | None) -> Predictor:
    """The second model, loaded beside the first (`subject`, None of one in memory); the first where both are one.

    An endpoint and llama.cpp take the first one's tokenizer unless they name one.
    """
    from lengthwise.subjects import open_model

    second = second_subject(measurement, subject or Subject(model=model.name))
    return model if second in (None, subject) else open_model(second, tokenizer=model.tokenizer)


def check_second(
    measurement: Measurement, subject: Subject, other: object = None, *, in_memory: bool = False
) -> None:
    """Raise UsageError unless a measurement that has a second model has it once, and another has none.

    Args:
        measurement, subject: what is measured.
        other: the second model, where it is given as an object.
        in_memory: whether the first is given so, and may be other than what its name stands for.
    """
    kind, name = measurement.about.kind, measurement.about.second
    named = None if name is None else getattr(measurement, name)
    if name is None and other is not None:
        raise UsageError(f"a second model is given, and {kind} has none", fix="leave out other")
    if named and other is not None:
        raise UsageError(
            f"a second model is given, and the settings of {kind} name one",
            expected="one of them",
            fix=f"leave out other, or {name}",
        )
    if isinstance(named, Mapping) and other is None:
        if not named:
            raise UsageError(
                f"{kind} is of two sides, and one is given", fix=f"give run other=..., or {name}"
            )
        if not in_memory and second_subject(measurement, subject) == subject:
            raise UsageError(
                "both sides are the same in everything",
                expected="another model, or a setting of one side, as in --b dtype=float32",
            )


def name_of(measurement: Measurement, subject: Subject) -> str:
    """What results call the measured model: of two sides both, each with what the other lacks."""
    second = second_subject(measurement, subject)
    if second is None or not isinstance(getattr(measurement, measurement.about.second or ""), Mapping):
        return subject.model
    names = []
    for side, other in ((subject, second), (second, subject)):
        own = [key for key in TAKEN_BY if getattr(side, key) not in (getattr(other, key), None, "auto")]
        shown = ", ".join(f"{key}={getattr(side, key)}" for key in own)
        names.append(f"{side.model} ({shown})" if shown else side.model)
    return " against ".join(names)
