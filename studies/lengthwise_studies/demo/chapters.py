"""The chapters of the demo: where a context ends, what a change costs, what training on agreement does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from lengthwise.errors import THRESHOLD_CROSSED, UNDECIDED
from lengthwise.measure.difference import difference_of_runs
from lengthwise.report.drawing import Picture, curve_picture, curves_of
from lengthwise.report.figures import BANDS, NATS, limit_curves, misalignment_parts
from lengthwise.report.html import Section
from lengthwise.report.sentence import said
from lengthwise.report.tables import row_text, tokens_text
from lengthwise.results import Results, Row
from lengthwise_studies.demo.kept import kept_section
from lengthwise_studies.demo.story import Chapter, Ran, Told, run_story
from lengthwise_studies.skeleton import Part, Study


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is read and trained.

    Args:
        model: what is compared with itself.
        limit, compare: options of the verbs.
        steps: of each training.
        windows: of `measure`.
    """

    model: str
    limit: str
    compare: str
    steps: int
    windows: int


SCALES = {
    "default": Size(
        model="smollm2-135m",
        limit="--max-length 1024 --windows 24",
        compare="--lengths 1024 --windows 4",
        steps=60,
        windows=48,
    ),
    "smoke": Size(
        model="tiny-books",
        limit="--max-length 256 --windows 3",
        compare="--lengths 512 --windows 3",
        steps=2,
        windows=4,
    ),
}


def _labelled(ran: Mapping[str, Ran], labels: Mapping[str, str]) -> list[Row]:
    """The rows of several runs, with labels for their models."""
    return [replace(row, model=label) for name, label in labels.items() for row in ran[name].results.rows]


def _few(results: Results, what: str) -> str:
    """How much was read."""
    documents = max(row.documents or 0 for row in results.rows)
    longest = max(row.length or 0 for row in results.rows)
    return f"Read: {results.config['windows']} {what} of {longest:,} tokens, from {documents} books"


CONTEXT = {"limit": "tiny-books", "limit-yarn4": "tiny-books with YaRN x4"}


def tell_context(ran: Mapping[str, Ran], folder: Path) -> Told:
    """Up to where both are sound."""
    sentences = []
    for name, label in CONTEXT.items():
        known = {row.metric: row for row in said(ran[name].results).numbers}
        sound = known.get("sound_up_to")
        end = f"sound up to {tokens_text(sound)}" if sound else "these windows show no end"
        sentences.append(f"{label}: {end}.")
    rows = [row for row in _labelled(ran, CONTEXT) if row.distance is None]
    picture = limit_curves(rows, name="demo-context")
    caption = "Vertical lines are the ends, the shade around them their 95 % intervals; the dashed line is the level."
    return Told(
        sentences,
        replace(picture, caption=caption) if picture else None,
        [
            f"{_few(ran['limit'].results, 'windows')}, the same before and after.",
            "Sound means: the loss with all context is at most 0.1 nats per token above the loss with the most "
            "recent tokens alone. 0.1 nats are 10 % of perplexity.",
            "`limit` has a second answer: how far back context is used. `tiny-books` copies hardly anything, so it "
            "needs a larger model. The end of this page has one.",
        ],
    )


CHANGE = {"4-bit": "cache of 4 bits", "2-bit": "cache of 2 bits"}
_OWN = "its own cache"
_GATES = {
    0: "The build passes: exit 0.",
    THRESHOLD_CROSSED: f"The build stops: exit {THRESHOLD_CROSSED}.",
    UNDECIDED: f"The gate cannot decide: exit {UNDECIDED}.",
}


def tell_change(ran: Mapping[str, Ran], folder: Path) -> Told:
    """The sentence of each comparison, and what its gate did."""
    return Told(
        [f"{said(ran[name].results).sentence} {_GATES[ran[name].code]}" for name in CHANGE],
        _two_caches(ran),
        [
            f"{_few(ran['4-bit'].results, 'pairs of windows')}, the same through every cache.",
            "A cache is read from token 256 on, where the second pass begins. Before, both are equal.",
            "`--fail-use 0.2` stops a build that loses more than a fifth of what a repeated passage is worth.",
        ],
    )


def _two_caches(ran: Mapping[str, Ran]) -> Picture | None:
    """How far each cache is from the model's own by position, and what far passages are worth with each."""
    rows = _labelled(ran, CHANGE)
    apart = [row for row in rows if row.metric == "difference" and row.position is not None]
    worth = [row for row in rows if row.metric == "benefit_b"]
    # Both comparisons have the same side A.
    own = [row for row in ran["4-bit"].results.rows if row.metric == "benefit_a"]
    worth += [replace(row, model=_OWN) for row in own]
    curves = partial(curves_of, series=[*CHANGE.values(), _OWN])
    return curve_picture(
        {
            "How far apart?\nMean |difference| from its own cache": curves(apart, attrgetter("position_end")),
            "Is far context used?\nBenefit of a repeated passage": curves(worth, attrgetter("distance")),
        },
        name="demo-change",
        title="The same tokens through a smaller cache",
        across="position, or distance of the passage (tokens)",
        up=NATS,
        caption="Left, 0 is equal. Right, what a passage is worth that came before, by how far back it came; 0 means "
        f"that it is not used. {BANDS}",
        share_y=False,
        levels=[0],
    )


AGREEMENT = {
    "before": "before",
    "measure-plain": "cross entropy alone",
    "measure-sce": "with SCE at weight 0.1",
    "measure-jeffreys": "with Jeffreys at weight 10",
}


def tell_agreement(ran: Mapping[str, Ran], folder: Path) -> Told:
    """What SCE consists of, and what each term does to its two parts."""
    before, plain, *terms = AGREEMENT
    found = difference_of_runs([folder / name for name in (plain, *terms)], metrics=("entropy", "jeffreys"))
    longest = max(row.length or 0 for row in found.rows)
    sentences = [*said(ran[before].results).more]
    for name in terms:
        changes = [
            row
            for row in found.rows
            if row.reference and row.length == longest and row.model == ran[name].results.model_name
        ]
        sentences.append(f"Trained {AGREEMENT[name]}: {', '.join(map(change_text, changes))}.")
    recipe = ran["sce"].results.config
    return Told(
        sentences,
        misalignment_parts(_labelled(ran, AGREEMENT)),
        [
            f"{_few(ran[before].results, 'windows')}",
            "Changes are against cross entropy alone, trained on the same windows.",
            f"Trained: {recipe['steps']} steps of {recipe['batch']['size']} pairs of {recipe['length']} tokens, with "
            "one seed. Another seed may differ by more than the intervals say.",
            "Whether a term helps to predict is another question: `make seeds` has the loss, with three seeds.",
        ],
    )


def change_text(row: Row) -> str:
    """By how much a part falls or rises, where that is more than noise."""
    part, value = f"the {row.metric.capitalize()} part", row.value
    if not row.beyond_noise or value is None:
        return f"no change of {part} beyond noise"
    size = replace(row, reference=None)
    if value < 0 and row.ci_low is not None and row.ci_high is not None:
        size = replace(size, value=-value, ci_low=-row.ci_high, ci_high=-row.ci_low)
    return f"{part} {'falls' if value < 0 else 'rises'} by {row_text(size)} nats"


_TRAIN = "train tiny-books --set steps={steps}"
_MEASURE = "--lengths 64 128 --windows {windows}"
CHAPTERS = (
    Chapter(
        name="context",
        question="Where does a context end?",
        about="`tiny-books`, a model of 1M parameters, was trained for 128 tokens. YaRN stretches its positions to "
        "four times as many, and trains nothing.",
        commands={
            "limit": "limit tiny-books {limit}",
            "yarn4": "extend tiny-books --method yarn --factor 4",
            "limit-yarn4": "limit {here}/yarn4 {limit}",
        },
        seconds=30,
        tell=tell_context,
    ),
    Chapter(
        name="change",
        question="What does a change cost?",
        about="`{model}` against itself, with keys and values of 4 and of 2 bits in its cache.",
        commands={
            f"{bits}-bit": f"compare {{model}} {{model}} --b kv_cache=quanto-int{bits} --dtype float32 {{compare}} "
            "--fail-use 0.2"
            for bits in (4, 2)
        },
        seconds=80,
        tell=tell_change,
    ),
    Chapter(
        name="agreement",
        question="What does training on agreement do?",
        about="The agreement paper's term, SCE, has two parts: entropy, how unsure predictions are, and Jeffreys, "
        "how far they move when early context is cut off. Only the second is agreement.",
        commands={
            "plain": _TRAIN,
            "sce": f"{_TRAIN} --set objective.alpha=0.1",
            "jeffreys": f"{_TRAIN} --set objective.divergence=jeffreys --set objective.alpha=10",
            "before": f"measure tiny-books {_MEASURE}",
            **{
                f"measure-{name}": f"measure {{here}}/{name}/model {_MEASURE}"
                for name in ("plain", "sce", "jeffreys")
            },
        },
        seconds=40,
        tell=tell_agreement,
        shown=("sce", "measure-sce"),
    ),
)


def _sections(results: Results, out: Path) -> list[Section]:
    size = Size(**results.config["size"])
    codes = results.config["exit codes"]
    told = [chapter.section(size, out / chapter.name, codes[chapter.name]) for chapter in CHAPTERS]
    return [*told, *kept_section()]


DEMO = Study(
    title="Do predictions hold as the context grows?",
    lead=(
        "Three questions, answered on this machine in a few minutes, and a longer measurement that was kept. "
        "Intervals are at 95 %; so few books make them wide.",
    ),
    parts=(Part(run=partial(run_story, CHAPTERS), sections=_sections, scales=SCALES),),
)
