"""What a form has to do, as claims: answer more far away, at a small cost, and lose nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise.results import Results
from lengthwise.studies.far.question_page import tasks_of
from lengthwise.studies.paired_claims import PairedClaim, Quantity

COST = 0.01
"""Nats a token that a form may cost at the shortest length."""
SHORT_LOSS = 0.05
"""Share of the short questions that it may lose."""


def claims_on(form: str, control: str, results: Results) -> list[PairedClaim]:
    """At the lengths and of the tasks that were measured; lengths are multiples of the shortest."""
    measures = results.config["measures"]
    asked, read = measures["eval"]["lengths"], measures["perplexity"]["lengths"]
    unit = min(read)
    tasks = tasks_of(results)

    def accuracy(task: str, length: int) -> Quantity:
        return Quantity(
            heading=f"{of(task)}accuracy at {length:,}",
            task=task,
            metric="accuracy",
            times=length / unit,
            unit="share",
        )

    def of(task: str) -> str:
        return "" if len(tasks) == 1 else f"{task}: "

    loss = Quantity(heading=f"loss at {unit:,}", task="perplexity", metric="loss", times=1)
    either: dict[str, Any] = {"source": None, "arm": form, "against": control}
    far = [
        PairedClaim(
            place="far",
            says=f"{of(task)}it answers more",
            quantity=accuracy(task, max(asked)),
            direction="higher",
            **either,
        )
        for task in tasks
    ]
    cost = PairedClaim(
        place="cost",
        says=f"it costs at most {COST:g} nats",
        quantity=loss,
        direction="not higher",
        margin=COST,
        **either,
    )
    near = [
        PairedClaim(
            place="near",
            says=f"{of(task)}it loses at most {100 * SHORT_LOSS:g} points",
            quantity=accuracy(task, min(asked)),
            direction="not lower",
            margin=SHORT_LOSS,
            **either,
        )
        for task in tasks
        if min(asked) < max(asked)
    ]
    return [*far, cost, *near]


def question_claims(form: str, control: str, results: Results) -> list[PairedClaim]:
    """`claims_on` a form, and that it keeps the middle of the longest prompts."""
    found = claims_on(form, control, results)
    far = found[0]
    depth = max(results.config["measures"]["eval"]["depths"])
    middle = replace(
        far,
        place="middle",
        says=f"it loses at most {100 * SHORT_LOSS:g} points in the middle",
        quantity=replace(far.quantity, heading=f"{far.quantity.heading}, depth {depth:g} %", depth=depth),
        direction="not lower",
        margin=SHORT_LOSS,
    )
    return [*found, middle]
