"""The numbers that the pages of findings say in sentences are those of the kept runs."""

import json
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.report.tables import Estimate
from lengthwise.results import Row
from lengthwise_studies.arms import arm_after
from lengthwise_studies.claims import NOT_DECIDED, Judged
from lengthwise_studies.far.studies import CONTROL, REPEATS
from lengthwise_studies.paired_claims import Paired, estimate_over_seeds
from lengthwise_studies.paper import table1
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.methods import ENTROPY, JEFFREYS, PLAIN, SCE
from lengthwise_studies.paper.sizes import BABILONG, QA1, SCORED, STEPS, loss
from lengthwise_studies.paper.yardsticks import EFFECTS
from lengthwise_studies.real.kept import kept_files
from lengthwise_studies.real.steps import REAL_STEPS
from lengthwise_studies.real.study import REAL
from tools.docs.context_32k import FARTHEST, QWEN, SMOLLM2
from tools.docs.far_summary import summary_table
from tools.docs.kept_results import kept_run
from tools.docs.kept_tables import kept_table
from tools.docs.paper_index import every_table
from tools.docs.real_tables import YARN, kept_real, of_real

ROOT = Path(__file__).parents[2]
SURE = (
    ("table3-laptop", "EABF"),
    ("table3-laptop", "LongQLoRA"),
    ("table4-laptop", ""),
    ("table11-laptop", "no adjustment"),
    ("cream-laptop", "CREAM"),
    ("cream-laptop", "CREAM on EABF"),
    ("when-laptop", "CLEX"),
    ("when-laptop", "CLEX, early"),
    ("twenty-laptop", "EABF"),
    ("twenty-laptop", "LongQLoRA"),
    ("twenty-laptop", "CLEX"),
    ("pretraining-2800-laptop", "CLEX, 2,800 steps"),
    ("pretraining-7000-laptop", "CLEX, 7,000 steps"),
)
"""The runs and settings on books whose start is sure enough."""


def each_seed(
    run: str,
    setting: str,
    arm: str = SCE,
    *,
    times: int | None = 2,
    metric: str = "loss",
    after: str = "",
    to: str = PLAIN,
) -> list[Row]:
    """An arm minus another, seed by seed."""
    pair = [f"{setting}: {name}{after}" if setting else f"{name}{after}" for name in (arm, to)]
    return [
        row
        for row in kept_run(ROOT, run).rows
        if [row.arm, row.reference] == pair and row.metric == metric
        if times is None or row.length == 128 * times
    ]  # fmt: skip


def apart(run: str, setting: str, arm: str = SCE, **what: Any) -> float:
    """An arm minus cross entropy alone, mean over seeds."""
    values = [row.value or 0.0 for row in each_seed(run, setting, arm, **what)]
    assert len(values) == 3, (run, setting, arm)
    return fmean(values)


def level(run: str, setting: str, metric: str) -> float:
    rows = kept_run(ROOT, run).select(arm=f"{setting}: {PLAIN}", reference=None, metric=metric)
    return fmean(row.value or 0.0 for row in rows)


def real(times: int, to: str = PLAIN) -> float:
    return fmean(row.value or 0.0 for row in of_real(ROOT, f"{YARN}: {SCE}", "loss", times, f"{YARN}: {to}"))


def longer_real() -> list[float]:
    """What the term costs at T/4 after 50 and 200 steps; it grows in every seed, at both lengths."""
    [setting] = REAL_STEPS.settings
    found = [
        {
            (row.length, row.seed): row.value or 0.0
            for row in kept_run(ROOT, "real-steps-laptop").select(arm=arm_after(setting.arm(SCE), steps))
            if row.reference is not None and row.metric == "loss"
        }
        for steps in (50, None)
    ]
    one, two = found
    assert one.keys() == two.keys()
    assert len(one) == 6
    assert all(two[key] > one[key] > 0 for key in one)
    return [fmean(of[2048, seed] for seed in range(3)) for of in found]


def limit(run: str, metric: str = "used_up_to") -> float:
    [row] = [row for row in kept_run(ROOT, run).rows if row.metric == metric and row.is_whole]
    return row.value or 0.0


def cached(name: str) -> float:
    run = kept_run(ROOT, f"cache-{name}-books-quanto-int4")
    [row] = [row for row in run.rows if row.metric == "shift" and row.length == 8192 and row.is_whole]
    return row.value or 0.0


def benefit(run: str, distance: int, metric: str = "benefit") -> float:
    """Of a passage so many tokens back, at the greatest length."""
    rows = [row for row in kept_run(ROOT, run).rows if (row.metric, row.distance) == (metric, distance)]
    return max(rows, key=lambda row: row.length or 0).value or 0.0


@cache
def correlations() -> dict[str, tuple[int, float]]:
    judged = table1.judged(kept_run(ROOT, "table1-laptop"))["all"]
    return {
        one.claim.says: (one.found.n, one.found.ours.value)
        for one in judged
        if isinstance(one.found.ours, Estimate) and one.found.ours.value is not None
    }


def with_long(says: str) -> float:
    return correlations()[f"{says} goes with the loss beyond T"][1]


def claims_on(*tasks: str) -> int:
    """The paper's claims on these tasks, over all tables."""
    return sum(one.test.quantity.task in tasks for table in TABLES.values() for one in table.claims)


def asked() -> int:
    """Questions at a depth of Table 7 on the real model, over seeds."""
    size = TABLES["table7"].sizes["laptop-smollm2"]
    return size.questions * size.seeds


def weakest_seen() -> float:
    """By depth, on a real model."""
    judged = REAL.judged(kept_real(ROOT))
    found = [one for one in judged if "facts" in one.claim.says and one.detectable is not None]
    assert {one.verdict for one in found} == {NOT_DECIDED}
    return min(one.detectable for one in found if one.detectable is not None)


def far() -> tuple[Estimate, float, float]:
    """Right answers, their p, and what the loss at 1,024 tokens costs."""
    _, answers, p, _, short = summary_table(ROOT).rows[0]
    assert isinstance(answers, Estimate)
    assert isinstance(short, Estimate)
    return answers, float(str(p)), short.value or 0.0


def lowered() -> list[float]:
    """By how much the agreement alone lowers the disagreement, of what cross entropy has."""
    settings = ("CREAM", "CREAM on EABF", "EABF")
    shares = [
        -100 * apart("cream-laptop", one, JEFFREYS, times=None, metric="jeffreys")
        / level("cream-laptop", one, "jeffreys")
        for one in settings
    ]  # fmt: skip
    return [min(shares), max(shares)]


def forgotten() -> list[float]:
    """What truncation with the agreement alone costs on code: tables that are kept as text have "+0.47 [...]"."""
    first = kept_table("sparsity-bridge-real", 3, ROOT).rows[0]
    return [float(str(cell).split()[0]) for cell in first[2:4]]


def below_penalty(times: int) -> float:
    return apart("twenty-laptop", "CLEX", ENTROPY, times=times) - apart("twenty-laptop", "CLEX", times=times)


def longer(steps: int, times: int, *, to: str = PLAIN, again: str = "") -> list[float]:
    """What the term adds to each model that was pretrained for so many steps."""
    run, setting = f"pretraining-{steps}-laptop{again}", f"CLEX, {steps:,} steps"
    return [row.value or 0.0 for row in each_seed(run, setting, times=times, to=to)]


def below_at_t() -> list[float]:
    """The mean after 7,000 steps, and its interval over seeds and documents, with the other sign."""
    found = estimate_over_seeds(
        each_seed("pretraining-7000-laptop", "CLEX, 7,000 steps", times=1, to=ENTROPY)
    )
    assert found is not None
    return [-(end or 0.0) for end in (found.value, found.high, found.low)]


def calibrated() -> list[float]:
    """What the term adds after 7,000 steps at the best temperature of each arm; no interval leaves 0 out."""
    run, setting, metric = "pretraining-7000-laptop", "CLEX, 7,000 steps", "loss_best_temperature"
    found = [estimate_over_seeds(each_seed(run, setting, times=times, metric=metric)) for times in (1, 2, 4)]
    assert all(one is not None and (one.low or 0.0) < 0 < (one.high or 0.0) for one in found)
    return [one.value or 0.0 for one in found if one is not None]


@cache
def judged_at(times: int) -> dict[tuple[str, str], Judged]:
    """Verdicts on cross entropy against an arm, of models of 1M parameters, after all steps."""
    return {
        (label, one.claim.says): one
        for label, study, several in every_table(ROOT)
        for one in several
        if isinstance(test := one.claim.test, Paired) and test.quantity == loss(times)
        if test.size is not None and test.direction == "lower" and test.steps in (None, STEPS)
        if one.p is not None and study != "real-geometry"
    }


def test_a_gain_as_large_as_the_papers_is_excluded_at_2t_but_for_an_unsure_start():
    found = judged_at(2)
    assert {label for label, _ in found} >= {"Table 2", "Table 4", "Ours, 2,800 steps", "Ours, 7,000 steps"}
    possible = {name for name, one in found.items() if not one.excluded}
    assert possible == {
        ("Ours, starts", f"CLEX, unsure: {arm} lowers the loss at 2T")
        for arm in ("SCE 0.1", "as printed 0.1", "SCE 0.03")
    }


def longer_seen_at_4t() -> float:
    found = [
        one for (label, _), one in judged_at(4).items() if label in ("Ours, 2,800 steps", "Ours, 7,000 steps")
    ]
    assert [one.verdict for one in found] == 2 * [NOT_DECIDED]
    return min(one.detectable or 0.0 for one in found)


def at_8192(arm: str) -> float:
    """The loss of an arm minus that of the control, mean over seeds."""
    rows = kept_run(ROOT, "far-long-texts").select(
        arm=arm, reference=CONTROL.name, metric="loss", length=8192
    )
    return fmean(row.value or 0.0 for row in rows)


def sgd(table: int, column: str) -> list[float]:
    """The medians of a kept table of Figure 1 with SGD."""
    kept = kept_table("figure1-paper", table, ROOT)
    return [float(str(row[kept.columns.index(column)]).split()[0]) for row in kept.rows]


def chains(run: str) -> float:
    [row] = kept_run(ROOT, run).select(task="chains_0", metric="accuracy", bucket=None)
    return row.value or 0.0


def entropy_share() -> float:
    """The entropy of both views over their Jeffreys divergence, in all steps of cross entropy with YaRN."""
    texts = [lzma.decompress(file.read_bytes()) for file in kept_files(ROOT / "studies/results/real")]
    steps = [row for text in texts for row in map(json.loads, text.splitlines()) if "entropy" in row]
    of = [row for row in steps if (row["setting"], row["arm"]) == (YARN, PLAIN)]
    return sum(row["entropy"] for row in of) / sum(row["jeffreys"] for row in of)


SENTENCES: dict[str, dict[str, Callable[[], object]]] = {
    "findings.md": {
        "YaRN x2 takes it to at least {:,.0f} tokens": lambda: [limit("limit-books-yarn2")],
        "A 4-bit cache costs one model {:.2f} nats per token and another {:.3f}.": lambda: [
            cached(model) for model in (QWEN, SMOLLM2)
        ],
        "give SmolLM2-135M {:.0f} points more answers": lambda: [100 * (far()[0].value or 0.0)],
        "The term adds {:.3f} nats at T and {:.3f} at 4T.": lambda: [real(1), real(4)],
        "lowers the loss, by {:.3f} nats at 2T and {:.3f} at 4T.": lambda: [
            -real(2, ENTROPY), -real(4, ENTROPY)
        ],
        "the term costs {:.3f} nats after 50 steps and {:.3f} after 200.": longer_real,
        "Over {} models it correlates by {:.2f} with the loss beyond T. The plain loss at T does by {:.2f}": lambda: [
            correlations()["SCE goes with the loss beyond T"][0], with_long("SCE"), with_long("the loss at T")
        ],
        "{} and {} claims wait for data": lambda: [claims_on(SCORED.task), claims_on(QA1, BABILONG)],
        "asks {} questions at each depth": lambda: [asked()],
        "SCE goes the other way: {:.2f}.": lambda: [
            correlations()["SCE goes with the rise beyond T, which is length generalization"][1]
        ],
        "the first part is {:.0f} times the second": lambda: [entropy_share()],
        "no gain beyond noise, {:+.3f} nats at 2T": lambda: [apart("when-laptop", "CLEX, unsure")],
        "the term adds {:.3f} to {:.3f} nats at 2T": lambda: [
            most(apart(*each) for each in SURE) for most in (min, max)
        ],
        "with EABF the term adds {:.3f} nats at weight 0.1": lambda: [apart("twenty-laptop", "EABF")],
        "the term costs {:.3f} nats with EABF": lambda: [
            apart("twenty-laptop", "EABF", after=" after 38 steps")
        ],
        "pretrainings, by {:.3f} nats at 2T and {:.3f} at 4T.": lambda: [below_penalty(2), below_penalty(4)],
        "changes below {:.2f} could not have been seen": lambda: [weakest_seen()],
        "After the longest pretraining SCE is below it at T, too, by {:.3f} nats [{:.3f}, {:.3f}].": below_at_t,
        "the term's cost with CLEX at T from {:.3f} to {:.3f} nats": lambda: [
            apart("when-laptop", "CLEX, early", times=1), fmean(longer(2800, 1))
        ],
        "the paper's gain of {:.3f} nats is excluded": lambda: [-EFFECTS["Table 4"].nats],
        "At 4T nothing is decided: changes below {:.2f} could": lambda: [longer_seen_at_4t()],
        "{:.3f} nats less than cross entropy and {:.3f} less than the penalty": lambda: [
            -longer(7000, 4)[2], -longer(7000, 4, to=ENTROPY)[2]
        ],
        "The others have {:+.3f} and {:+.3f}": lambda: longer(7000, 4)[:2],
        "costs nothing beyond noise: {:+.3f}, {:+.3f} and {:+.3f} nats at the three lengths.": calibrated,
        "repeated on another processor moved by {:.3f}": lambda: [
            longer(2800, 4, again="-again")[0] - longer(2800, 4)[0]
        ],
        "lowers the disagreement by {:.0f} to {:.0f} %": lowered,
        "rises by {:.2f} nats at tokens for which few distant tokens decide, and by {:.2f}": forgotten,
    },
    "far-context.md": {
        "then answers {:.0f} points more questions": lambda: [100 * (far()[0].value or 0.0)],
        "the 95 % interval is {:.0f} to {:.0f}.": lambda: [
            100 * (end or 0.0) for end in (far()[0].low, far()[0].high)
        ],
        "p = {:.2f}: promising, not proven": lambda: [far()[1]],
        "the loss rises by {:.3f} nats at 1,024 tokens. At 8,192 it rises by {:.3f}.": lambda: [
            far()[2], at_8192(REPEATS.name)
        ],
        "at 8,192 tokens is still {:.2f} nats lower than before": lambda: [at_8192("before") - at_8192(REPEATS.name)],
    },
    "a-32k-model.md": {
        "uses text only up to {:,.0f} tokens back": lambda: [limit("limit-books-beyond")],
        "moves it to at least {:,.0f}.": lambda: [limit("limit-books-yarn2")],
        "32,768 tokens back is worth {:.2f} nats per token. One 41,285 tokens back is worth {:.2f}.": lambda: [
            benefit("limit-books-beyond", distance) for distance in (32_768, 41_285)
        ],
        "the passage 65,472 tokens back is worth {:.1f} nats": lambda: [benefit("limit-books-yarn2", 65_472)],
        "a passage is worth {:.2f} nats as trained and {:.2f} with YaRN": lambda: [
            benefit(f"limit-code-{way}", 52_016) for way in ("beyond", "yarn2")
        ],
        "costs this model {:.2f} nats per token and SmolLM2-135M {:.3f}.": lambda: [
            cached(model) for model in (QWEN, SMOLLM2)
        ],
        "keeps {:.0f} % of what the passage is worth; SmolLM2, whose loss hardly moves, keeps {:.0f} %": lambda: [
            100 * benefit(f"cache-{model}-books-quanto-int4", FARTHEST, "benefit_kept")
            for model in (QWEN, SMOLLM2)
        ],
    },
    "synthetic.md": {
        "rises to {:,.0f} or more with each of the four encodings; the best constant errs by {:,.0f}.": lambda: [
            min(sgd(2, "at 50")), sgd(2, "best constant at 50")[0]
        ],
        "at length 50 NoPE errs by {:.4f}, a constant by {:g}.": lambda: [
            sgd(1, "at 50")[0], sgd(1, "best constant at 50")[0]
        ],
        "from {:.0f} to {:.0f} (mean beyond training)": lambda: sgd(3, "beyond training")[:2],
    },
    "../definitions/evaluation.md": {
        "answers {:.2f} of `chains_0` at 512 tokens. At 4,096 it answers {:.2f}": lambda: [
            chains(f"eval-smollm2-{run}") for run in ("baseline-512", "quarters")
        ],
    },
    "../use/extend.md": {
        "end of sound predictions of SmolLM2-135M from {:,.0f} to at least {:,.0f} tokens": lambda: [
            limit(f"limit-{name}", "sound_up_to") for name in ("smollm2", "yarn2")
        ],
    },
}  # fmt: skip
"""Page -> a part of a sentence -> its numbers; test_numbers_in_sentences.py looks for them."""
