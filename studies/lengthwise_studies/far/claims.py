"""What a form has to do, as claims: answer more far away, at a small cost, and lose nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from lengthwise.results import Results
from lengthwise_studies.far.page import KEY_LOSS, LIMITS, loss_at, task_prefix, tasks_of
from lengthwise_studies.paired_claims import PairedClaim, Quantity

COST = 0.01
"""Nats a token that a form may cost."""
SHORT_LOSS = 0.05
"""Share of the short questions that it may lose."""
_POINTS = f"{100 * SHORT_LOSS:g}"
_NEARLY_KEPT: dict[str, Any] = {"direction": "not lower", "margin": SHORT_LOSS}


def claims_on(form: str, control: str, results: Results) -> list[PairedClaim]:
    """At the lengths and of the tasks that were measured."""
    lengths = results.config["measures"]["eval"]["lengths"]
    tasks = tasks_of(results)
    claim = partial(PairedClaim, source=None, arm=form, against=control)

    def on_each_task(place: str, says: str, length: int, **judged: Any) -> list[PairedClaim]:
        return [
            claim(
                place=place,
                says=prefix + says,
                quantity=Quantity(
                    heading=f"{prefix}accuracy at {length:,}",
                    task=task,
                    metric="accuracy",
                    times=length,
                    unit="share",
                ),
                **judged,
            )
            for task in tasks
            for prefix in [task_prefix(task, tasks)]
        ]

    far = on_each_task("far", "it answers more", max(lengths), direction="higher")
    near = on_each_task("near", f"it loses at most {_POINTS} points", min(lengths), **_NEARLY_KEPT)
    cost = cost_claim(form, control, min(results.config["measures"]["perplexity"]["lengths"]))
    return [*far, cost, *(near if min(lengths) < max(lengths) else [])]


def cost_claim(form: str, control: str, length: int) -> PairedClaim:
    """What it may cost at this length."""
    return PairedClaim(
        place="cost",
        source=None,
        says=f"it costs at most {COST:g} nats",
        quantity=loss_at(length),
        arm=form,
        against=control,
        direction="not higher",
        margin=COST,
    )


def question_claims(form: str, control: str, results: Results) -> list[PairedClaim]:
    """`claims_on` a form, and that it keeps the middle of the longest prompts."""
    found = claims_on(form, control, results)
    far = found[0]
    depth = max(results.config["measures"]["eval"]["depths"])
    middle = replace(
        far,
        place="middle",
        says=f"it loses at most {_POINTS} points in the middle",
        quantity=replace(far.quantity, heading=f"{far.quantity.heading}, depth {depth:g} %", depth=depth),
        **_NEARLY_KEPT,
    )
    return [*found, middle]


def gold_claim(far: PairedClaim) -> PairedClaim:
    """The claim of more right answers as one of a higher probability of the right answer."""
    heading = far.quantity.heading.replace("accuracy", "gold")
    return replace(
        far,
        place="gold",
        says="it makes the right answer more probable",
        quantity=replace(far.quantity, heading=heading, metric="gold_probability"),
    )


def long_text_claims(form: str, control: str, results: Results) -> list[PairedClaim]:
    """What a form may cost at every length, and what it does if it uses more context."""
    claim = partial(PairedClaim, source=None, arm=form, against=control)
    lengths = results.config["measures"]["perplexity"]["lengths"]
    key = "what far context makes likely is likelier"
    return [
        *[cost_claim(form, control, length) for length in lengths],
        claim(place="key tokens", says=key, quantity=KEY_LOSS, direction="lower"),
        claim(place="used", says="it uses more context", quantity=LIMITS["used"], direction="higher"),
    ]
