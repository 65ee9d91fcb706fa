"""What else changed in the models of `far-parts`? Losses up to 8,192 tokens, LongPPL, and `limit`. One seed.

Questions and repeated passages are tasks. These measurements are not: the loss of the same tokens at each length, the
loss of the tokens that far context makes likely (LongPPL), and where reading more stops to help and to be safe. A
finished `far-parts` has the trainings: `--arms-from`.
"""

from __future__ import annotations

from dataclasses import replace

from lengthwise.studies.arms import Scale
from lengthwise.studies.far.longer_windows import SCALES as WINDOWS
from lengthwise.studies.far.screen import EXPERIMENT as SCREEN
from lengthwise.studies.far.skips_or_repeats import EXPERIMENT as PARTS
from lengthwise.studies.far.study_page import far_study

EXPERIMENT = replace(
    SCREEN,
    kind="far-reach",
    arms=PARTS.arms,
    notes=(
        SCREEN.notes[0],
        "Held-out text: {documents} whole documents. All arms predict the same tokens. The key tokens of LongPPL "
        "are those of the model before training. Computed in {precision}.",
    ),
)


def _scale(name: str) -> Scale:
    """Contexts half as long again as the trained length, so that a limit at its end can be seen. One seed."""
    scale = replace(WINDOWS[name], seeds=1)
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


SCALES = {name: _scale(name) for name in WINDOWS}
FAR_REACH = far_study(
    EXPERIMENT,
    SCALES,
    title="What else do skips and repeats change?",
    heading="Loss, LongPPL and the useful context",
)
