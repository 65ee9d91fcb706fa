"""The chapters of the demo: where a context ends, what a change costs, what training on agreement does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lengthwise.errors import THRESHOLD_CROSSED, UNDECIDED
from lengthwise.measure.difference import difference_of_runs
from lengthwise.report.figures import differences_by_position, limit_curves, misalignment_parts
from lengthwise.report.html import Section
from lengthwise.report.limit_answer import reaches
from lengthwise.report.sentence import said
from lengthwise.report.tables import row_text
from lengthwise.results import Results, Row, read_results
from lengthwise_studies.demo.story import Chapter, run_story
from lengthwise_studies.skeleton import Part, Study

_CONTEXT = {"limit": "tiny-books", "limit-yarn4": "tiny-books with YaRN x4"}
_CHANGE = {"4-bit": "cache of 4 bits", "2-bit": "cache of 2 bits"}
_GATES = {
    0: "The build passes: exit 0.",
    THRESHOLD_CROSSED: f"The build stops: exit {THRESHOLD_CROSSED}.",
    UNDECIDED: f"The gate cannot decide: exit {UNDECIDED}.",
}
_AGREEMENT = {
    "before": "before",
    "measure-plain": "cross entropy alone",
    "measure-sce": "with SCE at weight 0.1",
    "measure-jeffreys": "with Jeffreys at weight 10",
}
"""The curves of a picture, by run folder."""
_MEANS = {"entropy": ("surer", "less sure"), "jeffreys": ("more in agreement", "less in agreement")}
"""What it means that a part falls, and that it rises."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What is compared with itself, and options of the verbs: how much is read and trained."""

    model: str
    limit: str
    compare: str
    train: str
    measure: str


SCALES = {
    "default": Size(
        model="smollm2-135m",
        limit="--max-length 1024 --windows 16",
        compare="--lengths 512 --windows 4",
        train="--set steps=60",
        measure="--lengths 128 --windows 128",
    ),
    "smoke": Size(
        model="tiny-books",
        limit="--max-length 256 --windows 3",
        compare="--lengths 512 --windows 3",
        train="--set steps=2",
        measure="--lengths 128 --windows 4",
    ),
}


def _read(here: Path, names: Iterable[str]) -> dict[str, Results]:
    return {name: read_results(here / name / "results.json") for name in names}


def _labelled(found: Mapping[str, Results], labels: Mapping[str, str]) -> list[Row]:
    return [replace(row, model=label) for name, label in labels.items() for row in found[name].rows]


def _size(results: Results, what: str) -> str:
    """How much was read."""
    documents, longest = (
        max(getattr(row, of) or 0 for row in results.rows) for of in ("documents", "length")
    )
    return f"Read: {results.config['windows']} {what} of {longest:,} tokens, from {documents} books"


def _tell_context(here: Path, codes: Mapping[str, int]) -> Section:
    found = _read(here, _CONTEXT)
    lead = []
    for name, label in _CONTEXT.items():
        sound = reaches(found[name])["sound_up_to"]
        lead.append(
            f"{label}: {f'sound up to {sound.text} tokens' if sound.row else 'these windows show no end'}."
        )
    picture = limit_curves(
        [row for row in _labelled(found, _CONTEXT) if row.distance is None], name="demo-context"
    )
    caption = (
        "Vertical lines are the ends, the shade around them their intervals; the dashed line is the level."
    )
    return Section(
        title="",
        lead=lead,
        figures=[replace(picture, caption=caption)] if picture else [],
        notes=[
            f"{_size(found['limit'], 'windows')}, the same before and after.",
            "Sound means: the loss with all context is at most 0.1 nats per token above the loss with the most "
            "recent tokens alone. 0.1 nats are 10 % of perplexity.",
            "`limit` has a second answer: how far back context is used. `tiny-books` copies hardly anything, so it "
            "needs a larger model.",
        ],
    )


def _tell_change(here: Path, codes: Mapping[str, int]) -> Section:
    found = _read(here, _CHANGE)
    drawn = {
        label: differences_by_position(found[name].rows, name=f"demo-{name}")
        for name, label in _CHANGE.items()
    }
    return Section(
        title="",
        lead=[f"{said(found[name]).sentence} {_GATES[codes[name]]}" for name in _CHANGE],
        figures=[
            replace(one, caption=f"B has a {label}. {one.caption}")
            for label, one in drawn.items()
            if one is not None
        ],
        notes=[
            f"{_size(found['4-bit'], 'pairs of windows')}, the same through every cache.",
            "A cache is read from token 256 on, where the second pass begins. Before, both are equal.",
            "`--fail-use 0.2` stops a build that loses more than a fifth of what a repeated passage is worth.",
        ],
    )


def _tell_agreement(here: Path, codes: Mapping[str, int]) -> Section:
    found = _read(here, (*_AGREEMENT, "sce"))
    before, plain, *terms = _AGREEMENT
    changes = difference_of_runs(
        [here / name for name in (plain, *terms)], metrics=("entropy", "jeffreys")
    ).rows
    lead = [*said(found[before]).more]
    for name in terms:
        model = found[name].model_name
        texts = [change_text(row) for row in changes if row.reference and row.model == model]
        lead.append(f"Trained {_AGREEMENT[name]}: {', '.join(texts)}.")
    picture, recipe = misalignment_parts(_labelled(found, _AGREEMENT)), found["sce"].config
    return Section(
        title="",
        lead=lead,
        figures=[picture] if picture else [],
        notes=[
            f"{_size(found[before], 'windows')}.",
            "Changes are against cross entropy alone, trained on the same windows.",
            f"Trained: {recipe['steps']} steps of {recipe['batch']['size']} pairs of {recipe['length']} tokens, with "
            "one seed. Another seed may differ by more than the intervals say.",
            "Whether a term helps to predict is another question: `lengthwise reproduce tiny-books --seeds 3`.",
        ],
    )


def change_text(row: Row) -> str:
    """What a change of a part means, with its size, where it is more than noise."""
    part, value = f"the {row.metric.capitalize()} part", row.value
    if not row.beyond_noise or value is None:
        return f"no change of {part} beyond noise"
    size = replace(row, reference=None)
    if value < 0 and row.ci_low is not None and row.ci_high is not None:
        size = replace(size, value=-value, ci_low=-row.ci_high, ci_high=-row.ci_low)
    meaning = _MEANS[row.metric][value > 0]
    return f"{meaning} ({part} {'falls' if value < 0 else 'rises'} by {row_text(size)} nats)"


_TRAIN = "train tiny-books {train}"
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
        seconds=20,
        tell=_tell_context,
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
        tell=_tell_change,
    ),
    Chapter(
        name="agreement",
        question="What does training on agreement do?",
        about="The alignment paper's term, SCE, has two parts: entropy, how unsure predictions are, and Jeffreys, "
        "how far they move when early context is cut off. Only the second is agreement.",
        commands={
            "plain": _TRAIN,
            "sce": f"{_TRAIN} --set objective.alpha=0.1",
            "jeffreys": f"{_TRAIN} --set objective.divergence=jeffreys --set objective.alpha=10",
            "before": "measure tiny-books {measure}",
            **{
                f"measure-{name}": f"measure {{here}}/{name}/model {{measure}}"
                for name in ("plain", "sce", "jeffreys")
            },
        },
        seconds=50,
        tell=_tell_agreement,
        shown=("sce", "measure-sce"),
    ),
)


def _sections(results: Results, out: Path) -> list[Section]:
    size = Size(**results.config["size"])
    codes = results.config["exit codes"]
    return [chapter.section(size, out / chapter.name, codes[chapter.name]) for chapter in CHAPTERS]


DEMO = Study(
    title="Do predictions hold as the context grows?",
    lead=(
        "Three questions, answered on this machine in a few minutes. Intervals are at 95 %; so few books make them "
        "wide.",
    ),
    parts=(
        Part(
            run=partial(run_story, CHAPTERS),
            sections=_sections,
            scales=SCALES,
            seconds=sum(chapter.seconds for chapter in CHAPTERS),
        ),
    ),
)
