"""Far beyond the trained length: skips and repeats with YaRN by a factor of four. One seed: a screen.

SmolLM2-135M then reads 32,768 tokens, four times what it was trained for. Skips reach as far. The losses are those of
the same tokens after 1,024, 8,192 and 16,384 tokens.
"""

from __future__ import annotations

from lengthwise.studies.far.repeats import REPEATS
from lengthwise.studies.far.screen import CONTROL, screen_arms
from lengthwise.studies.far.skips_with_yarn import with_yarn, yarn_study

EXPERIMENT = with_yarn("far-yarn-4", 4, *screen_arms(CONTROL), REPEATS)
FAR_YARN_4 = yarn_study(EXPERIMENT, 4, length=20_000, losses={"lengths": [1024, 8192, 16384], "segments": 4})
