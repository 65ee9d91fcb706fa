"""What a form has to do, as claims: answer more far away, at a small cost, and lose nothing elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from lengthwise.results import Results
from lengthwise_studies.claims import Claim
from lengthwise_studies.far.page import KEY_LOSS, LIMITS, loss_at, task_prefix, tasks_of
from lengthwise_studies.paired_claims import Paired, Quantity

COST = 0.01
"""Nats a token that a form may cost."""
SHORT_LOSS = 0.05
"""Share of the short questions that it may lose."""
_POINTS = f"{100 * SHORT_LOSS:g}"
_NEARLY_KEPT: dict[str, Any] = {"direction": "not lower", "margin": SHORT_LOSS}


def claims_on(form: str, control: str, results: Results) -> list[Claim[Paired]]:
    """At the lengths and of the tasks that were measured."""
    lengths = results.config["measures"]["eval"]["lengths"]
    tasks = tasks_of(results)
    compared = partial(Paired, arm=form, against=control)

    def on_each_task(place: str, says: str, length: int, **judged: Any) -> list[Claim[Paired]]:
        return [
            Claim(
                place=place,
                says=prefix + says,
                test=compared(
                    quantity=Quantity(
                        heading=f"{prefix}accuracy at {length:,}",
                        task=task,
                        metric="accuracy",
                        times=length,
                        unit="share",
                    ),
                    **judged,
                ),
            )
            for task in tasks
            for prefix in [task_prefix(task, tasks)]
        ]

    far = on_each_task("far", "it answers more", max(lengths), direction="higher")
    near = on_each_task("near", f"it loses at most {_POINTS} points", min(lengths), **_NEARLY_KEPT)
    cost = cost_claim(form, control, min(results.config["measures"]["perplexity"]["lengths"]))
    return [*far, cost, *(near if min(lengths) < max(lengths) else [])]


def cost_claim(form: str, control: str, length: int) -> Claim[Paired]:
    """What it may cost at this length."""
    test = Paired(quantity=loss_at(length), arm=form, against=control, direction="not higher", margin=COST)
    return Claim(place="cost", says=f"it costs at most {COST:g} nats", test=test)


def question_claims(form: str, control: str, results: Results) -> list[Claim[Paired]]:
    """`claims_on` a form, and that it keeps the middle of the longest prompts."""
    found = claims_on(form, control, results)
    far = found[0].test.quantity
    depth = max(results.config["measures"]["eval"]["depths"])
    middle = replace(far, heading=f"{far.heading}, depth {depth:g} %", depth=depth)
    kept = Claim(
        place="middle",
        says=f"it loses at most {_POINTS} points in the middle",
        test=replace(found[0].test, quantity=middle, **_NEARLY_KEPT),
    )
    return [*found, kept]


def gold_claim(far: Claim[Paired]) -> Claim[Paired]:
    """The claim of more right answers as one of a higher probability of the right answer."""
    accuracy = far.test.quantity
    gold = replace(accuracy, heading=accuracy.heading.replace("accuracy", "gold"), metric="gold_probability")
    says = "it makes the right answer more probable"
    return Claim(place="gold", says=says, test=replace(far.test, quantity=gold))


def long_text_claims(form: str, control: str, results: Results) -> list[Claim[Paired]]:
    """What a form may cost at every length, and what it does if it uses more context."""
    compared = partial(Paired, arm=form, against=control)
    lengths = results.config["measures"]["perplexity"]["lengths"]
    key = "what far context makes likely is likelier"
    return [
        *[cost_claim(form, control, length) for length in lengths],
        Claim(place="key tokens", says=key, test=compared(quantity=KEY_LOSS, direction="lower")),
        Claim(
            place="used",
            says="it uses more context",
            test=compared(quantity=LIMITS["used"], direction="higher"),
        ),
    ]
