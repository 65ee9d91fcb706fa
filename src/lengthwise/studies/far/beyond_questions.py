"""What else changed in the models of `far-parts`? Losses up to 8,192 tokens, LongPPL, and `limit`. One seed.

Questions and repeated passages are tasks. These measurements are not: the loss of the same tokens at each length, the
loss of the tokens that far context makes likely (LongPPL), and where reading more stops to help and to be safe. A
finished `far-parts` has the trainings: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.studies.arm_tables import Line
from lengthwise.studies.arms import Scale
from lengthwise.studies.far.longer_windows import SCALES
from lengthwise.studies.far.question_page import arms_table
from lengthwise.studies.far.screen import CONTROL
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.skips_or_repeats import EXPERIMENT as PARTS
from lengthwise.studies.skeleton import Study

EXPERIMENT = replace(
    SCREEN,
    kind="far-reach",
    arms=PARTS.arms,
    notes=(
        SCREEN.notes[0],
        "Held-out text: {documents} whole documents. All arms predict the same tokens, and the key tokens of LongPPL "
        "are those of the model before training. Computed in {precision}.",
    ),
)


def reach_table(results: Results, *, caption: str, reference: str | None = None) -> Table:
    """One row for each arm, one column for each number, with 95 % intervals."""
    lengths = results.config["measures"]["perplexity"]["lengths"]
    shown = [
        *(Line(f"loss at {length:,}", "perplexity", "loss", 3, length=length) for length in lengths),
        Line("loss of key tokens", "longppl", "loss_key", 3),
        Line("sound up to", "limit", "sound_up_to", 0),
        Line("used up to", "limit", "used_up_to", 0),
    ]
    return arms_table(results, caption=caption, reference=reference, shown=shown)


def sections(results: Results, folder: Path) -> list[Section]:
    """The study as one section of a page."""
    return [
        Section(
            title="Loss, LongPPL and the useful context",
            paragraphs=[
                f"`{results.model_name}` before and after training, on text that it was not trained on. Losses are "
                "in nats a token, limits in tokens.",
            ],
            tables=[
                reach_table(results, caption="Every arm"),
                reach_table(results, caption=f"Paired difference from {CONTROL}", reference=CONTROL),
            ],
            notes=results.notes,
        )
    ]


def _scale(name: str) -> Scale:
    """Contexts half as long again as the trained length, so that a limit at its end can be seen. One seed."""
    scale = replace(SCALES[name], seeds=1)
    if name == "smoke":
        measures = {
            "perplexity": {"lengths": [64, 128], "segments": 2},
            "longppl": {"length": 128, "short": 32, "texts": 2},
            "limit": {"length": 256, "reference": 32, "windows": 2, "passage": 16, "scored": 12},
        }
    else:
        measures = {
            "perplexity": {"lengths": [1024, 4096, 8192], "segments": 6},
            "longppl": {"length": 8192, "short": 1024, "stride": 1024, "texts": 4},
            "limit": {"length": 12288, "windows": 3},
        }
    return replace(scale, measures=measures)


FAR_REACH = Study(
    title="What else do skips and repeats change?",
    parts=(EXPERIMENT.part(sections, {name: _scale(name) for name in SCALES}),),
    takes=("seeds", "steps"),
)
