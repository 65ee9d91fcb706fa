"""Every number that a sentence of the documentation gives as measured has a key, or says here what else it is.

Such a number has a decimal point or a unit, or counts models, questions or claims. A key is a row of `SENTENCES`,
here or in test_findings.py, which makes the number from a kept run. `GIVEN` has numbers that no run of ours measured.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median

import pytest

from lengthwise.report.tables import Estimate
from lengthwise_studies.far.studies import CONTROL, REPEATS
from lengthwise_studies.paper.methods import PLAIN
from lengthwise_studies.paper.sizes import DEPTHS, SCORED
from lengthwise_studies.real.study import FULL
from tests.tools.test_findings import SENTENCES as FINDINGS
from tests.tools.test_findings import cached, claims_on, entropy_share, far, limit, longer_real, real
from tools.docs.bench_tables import kept_bench, objective_rows, ratios, step_times, verb_times
from tools.docs.context_32k import QWEN, SMOLLM2
from tools.docs.kept_results import kept_run
from tools.docs.kept_tables import kept_table
from tools.docs.real_tables import YARN, of_real

ROOT = Path(__file__).parents[2]
WRITTEN = ("architectures.md", "baseline.md", "devices.md", "faults.md", "hardware.md", "servers.md")
"""Pages of the reference whose sentences no tool makes."""
PAGES = [
    path
    for path in (ROOT / "README.md", ROOT / "studies/README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name in WRITTEN or "reference" not in path.relative_to(ROOT).parts
]
UNITS = "models|questions|claims|nats|points|times|passes|ms|seconds|minutes|hours|[KMG]B"
NUMBER = re.compile(
    rf"(?<![\w.,/-])[+-]?(?:\d[\d,]*\.\d+(?:e-?\d+)?|\d[\d,]*(?= (?:{UNITS})\b)|\d[\d,]*(?= %))(?![\w.]*\w)"
)
NO_MEASUREMENT = re.compile(
    r"`[^`]*`|95 %|arXiv [\d.]+|\d+\.\d+\.\d+"
    r"|(?:Python|Llama|transformers|Triton|Theorem|Assumption|Sec\.) \(?\d[\d.]*"
)
"""Code, the level of all intervals, versions, and places in a paper."""


def chosen_far(arm: str, depth: float) -> float:
    """Accuracy over seeds at 7,000 tokens."""
    of = {"task": "needle_multi_key", "metric": "accuracy", "length": 7000}
    rows = kept_run(ROOT, "far-repeats").select(arm=arm, reference=None, depth=depth, **of)
    assert len(rows) == 3
    return fmean(row.value or 0.0 for row in rows)


def gained(depth: float) -> float:
    return 100 * (chosen_far(REPEATS.name, depth) - chosen_far(CONTROL.name, depth))


def on_a_gpu(row: str, other: str) -> float:
    rows = objective_rows(ROOT, "llama3")
    return ratios(rows[row][0], rows[other][0])[0]


def room_on_a_gpu(row: str, other: str) -> float:
    rows = objective_rows(ROOT, "llama3")
    return rows[row][1] / rows[other][1]


def taught() -> list[float]:
    """A step whose second view has no gradients, beside one on one view."""
    times = step_times(ROOT)
    return [ratios(times[name], times["ce"])[0] for name in ("kl", "reverse_kl")]


def sound(dtype: str, metric: str) -> float:
    return max(
        row.value or 0.0
        for model in ("smollm2-135m", "tiny-books")
        for row in kept_run(ROOT, f"lab-{model}").rows
        if (row.task, row.arm, row.metric) == ("sound", dtype, metric)
    )


def covered() -> float:
    """How many intervals hold the truth, mean over texts, measurements and numbers of documents."""
    rows = kept_run(ROOT, "lab-tiny-books").rows
    return 100 * fmean(
        row.value or 0.0 for row in rows if (row.task, row.metric) == ("real documents", "covered")
    )


def vllm_apart() -> float:
    """The greatest difference of a server from its own checkpoint, in hundred-thousandths of a nat, rounded up."""
    rows = kept_run(ROOT, "served-real").select(task="difference", metric="difference")
    equal = ("plain against plain", "YaRN x2 against YaRN x2")
    most = max(row.value or 0.0 for row in rows if row.arm in equal)
    return -(-most // 1e-5) * 1e-5


def llama_cpp_apart(arm: str) -> float:
    rows = kept_run(ROOT, "llamacpp-real").select(arm=arm, length=4096, metric="difference")
    [row] = [row for row in rows if row.is_whole]
    return row.value or 0.0


def perplexity(arm: str) -> float:
    return fmean(row.value or 0.0 for row in of_real(ROOT, f"{YARN}: {arm}", "perplexity", 1))


def early_needles() -> float:
    """The share that cross entropy finds in the first half of T."""
    found = [
        of_real(ROOT, f"{YARN}: {PLAIN}", "accuracy", 1, task="needle_multi_key", depth=depth)
        for depth in (0.0, 25.0)
    ]
    return 100 * fmean(row.value or 0.0 for rows in found for row in rows)


def interval(found: Estimate) -> list[float]:
    return [100 * (end or 0.0) for end in (found.low, found.high)]


def sgd_clamped() -> float:
    kept = kept_table("figure1-paper", 3, ROOT)
    [row] = [row for row in kept.rows if row[0] == "1/sqrt"]
    return float(str(row[-1]).rstrip("%"))


def above_guessing() -> float:
    """The most that a task without answers by quarter is above guessing at 4,096 tokens, rounded up."""
    most = 0.0
    for run in ("smollm2-eight", "smollm2-four", "gemma3-eight-4096", "gemma3-four-4096"):
        rows = [row for row in kept_run(ROOT, f"eval-{run}").rows if row.length == 4096 and row.is_whole]
        of = {(row.task, row.metric): row.value or 0.0 for row in rows}
        tasks = {task for task, _ in of} - {"association_literal", "chains_0"}
        most = max(most, *(of[task, "accuracy"] - of[task, "chance"] for task in tasks))
    return -(-most // 0.01) * 0.01


def adam_mean_at_50() -> float:
    kept = kept_table("figure1", 1, ROOT)
    [row] = [row for row in kept.rows if row[:2] == ["none (NoPE)", "Adam"]]
    return float(str(row[-1]).split()[0])


SENTENCES: dict[str, dict[str, Callable[[], object]]] = {
    "README.md": {
        "keeps a sound loss for {:,.0f} tokens of books and uses only the last {:,.0f}.": lambda: [
            limit("limit-books-beyond", metric) for metric in ("sound_up_to", "used_up_to")
        ],
        "claims 8,192 tokens, is sound up to {:,.0f} and uses {:,.0f}": lambda: [
            limit("limit-smollm2", metric) for metric in ("sound_up_to", "used_up_to")
        ],
        "sound predictions to at least {:,.0f} tokens": lambda: [limit("limit-yarn2", "sound_up_to")],
        "by {:.3f} to {:.3f} nats at lengths up to 32k.": lambda: [
            of(real(times) for times in FULL.lengths) for of in (min, max)
        ],
        "{:.0f} points [{:.0f}, {:.0f}] more right answers about long books.": lambda: [
            100 * (far()[0].value or 0.0), *interval(far()[0])
        ],
        "After correction p is {:.2f}": lambda: [far()[1]],
        "costs one model {:.2f} nats and another {:.3f}": lambda: [cached(QWEN), cached(SMOLLM2)],
    },
    "docs/evidence/findings.md": {"where cross entropy finds {:.0f} %": lambda: [early_needles()]},
    "docs/evidence/far-context.md": {
        "answers {:.2f} at the beginning, cross entropy {:.2f}": lambda: [
            chosen_far(arm.name, 0.0) for arm in (REPEATS, CONTROL)
        ],
        "{:.0f} points at the beginning, {:.0f} a quarter of the way in": lambda: [gained(0.0), gained(25.0)],
        "one with a detached teacher {:.1f} to {:.1f} times": taught,
    },
    "docs/evidence/performance.md": {
        "It needs {:.2f} of the time of its formula": lambda: [on_a_gpu("fused_triton@1024", "naive")],
        "take {:.1f} ms.": lambda: [median(objective_rows(ROOT, "llama3")["products"][0])],
        "saves {:.0f} % of the loss's time for {:.0f} % of its memory": lambda: [
            100 - 100 * on_a_gpu("fused_triton@1024", "fused_triton"),
            100 * room_on_a_gpu("fused_triton@1024", "fused_triton") - 100,
        ],
        "the torch tile takes {:.1f} times as long": lambda: [on_a_gpu("fused_torch", "fused_triton")],
        "in {good} comparisons. Of its {of} tests {passed} passed": lambda: {
            **kept_bench(ROOT, "gpu")["kernels"], **kept_bench(ROOT, "gpu")["cases"]
        },
        "makes it {:.1f} to {:.1f} of a step on one view": taught,
        "EPYC, {:.1f} seconds a pass": lambda: [median(verb_times(ROOT)["bare"])],
    },
    "docs/evidence/papers.md": {"judges all {} claims on LongBench-E": lambda: [claims_on(SCORED.task)]},
    "docs/evidence/real-model.md": {
        "of {:,} questions of either kind": lambda: [FULL.questions * len(DEPTHS) * FULL.seeds],
        "where cross entropy finds {:.0f} %": lambda: [early_needles()],
        "the perplexity at T falls from {:.1f} to {:.1f}.": lambda: [perplexity("untrained"), perplexity(PLAIN)],
        "The term costs {:.3f} nats at T/4 after 50 steps and {:.3f} after 200.": longer_real,
    },
    "docs/evidence/servers.md": {
        "predicts as the checkpoint to {:.5f} nats": lambda: [vllm_apart()],
        "llama.cpp differs by {:.2f} nats when healthy": lambda: [llama_cpp_apart("f16 against transformers")],
        "an 8-bit cache moves predictions by {:.3f} nats. One of half the bits moves them by {:.2f}.": lambda: [
            llama_cpp_apart(f"{cache} against f16") for cache in ("q8_0", "q4_0")
        ],
    },
    "docs/evidence/synthetic.md": {
        "Adam reaches {:.5f}": lambda: [adam_mean_at_50()],
        "up to {:.0f} % of its outputs leave": lambda: [sgd_clamped()],
    },
    "docs/reference/baseline.md": {"is more than {:.2f} above guessing": lambda: [above_guessing()]},
    "docs/use/choose.md": {"about {:.0f} % entropy": lambda: [100 * entropy_share() / (1 + entropy_share())]},
    "docs/use/ci.md": {"In float32 they differ by less than {:.4f}": lambda: [sound("float32", "tolerance")]},
    "docs/use/compare.md": {
        "with 4 bits {:.1f} nats for Qwen2.5-Coder and {:.2f} for SmolLM2": lambda: [
            cached(QWEN), cached(SMOLLM2)
        ],
    },
    "docs/use/how-it-works.md": {"differ by up to {:.2f} nats": lambda: [sound("bfloat16", "most")]},
    "docs/use/troubleshooting.md": {"Of books and of code {:.0f} % of them hold": lambda: [covered()]},
}  # fmt: skip
"""Page -> a part of a sentence -> its numbers."""
GIVEN: dict[str, tuple[str, ...]] = {
    # Definitions and settings; 0.25 is one of four answers.
    "docs/definitions/evaluation.md": ("at least 85 % of the score", "a score above 0.5", "guessing 0.25"),
    "docs/definitions/measuring.md": (
        "clearly above 0.05 nats", "more than 5 % of the resamples", "below 0.05 where", "at most 5 % of tables",
        "within 10 % of it",  # tests/measure/test_limit.py
    ),
    "docs/evidence/papers.md": ("at weight 0.1", "from alpha = 0.5 on"),
    "docs/evidence/performance.md": ("by at most 1.1 times as much",),
    "docs/evidence/findings.md": ("at weight 0.1",),
    "docs/reference/servers.md": ("for 45 seconds",),
    "docs/reference/faults.md": (
        "attention scaled by 1.05, noise of 0.05 nats", "400 times: B is 0.02 nats per token worse",
        "drawn 500 times", "lies below 92.4 %",
    ),
    "docs/use/ci.md": ("The default of 0.1",),
    "docs/use/how-it-works.md": (
        "the tolerance of 0.1 nats", "at most 1.5 times what", "by 0.1 nats makes the perplexity 10 % higher"
    ),
    # How many questions the studies ask.
    "docs/reference/baseline.md": ("at least 96 questions a cell", "24 or 48 questions a quarter"),
    # Arithmetic: an exact binomial interval, closed forms of errata.md.
    "docs/use/choose.md": ("intervals of 60 points",),
    "docs/evidence/theory.md": ("the error is 1.62 and the printed bound 0.9025",),
    # Of others: sizes, versions, what the authors print; and what we wished for.
    "docs/evidence/comparison.md": ("needs 34 GB",),
    "docs/use/quick-start.md": ("in place of 6 GB",),
    "docs/evidence/synthetic.md": ("a constant by 0.005",),
    "docs/evidence/far-context.md": (
        "We aimed for 20 points on two models, and 1.5 times", "nearly reaches the 20 points", "0 % is the beginning"
    ),
    # How long a program takes.
    "docs/evidence/guarantees.md": ("(30 minutes on two cores)",),
    # The output of its command, which tools/tutorials.py runs.
    "docs/use/measure.md": ("about 3 nats per token",),
    # studies/tests/test_real_kept.py
    "docs/evidence/real-model.md": (
        "0.1 SCE, 0.1 of the entropy", "All p values are below 0.001",
        "84 % of the cost at T and 91 % at 2T", "to 0.001 nats", "stays below 0.02", "costs 0.059 nats at T",
        "with CLEX at 2T: 0.040 nats. With LongQLoRA (Table 3) it is 0.009.", "by 0.121 nats [0.100, 0.142]",
        "above the 0.012 that the rebuttal itself has", "0.6 % of the paper's samples",
        "needles change by +0.010 [-0.014, 0.034]",
        "-0.024 [-0.043, -0.004]", "all needles at 75 % are found",
        "changes below 0.17 could not have been seen",
    ),
}  # fmt: skip
"""Page -> parts of sentences whose numbers are not measured, or held by the test or the program that is named."""


@cache
def sentences(page: Path) -> str:
    """The page's sentences: without tables, code blocks, headings, link targets and the passages that tools write."""
    text = re.sub(r"<!-- table.*?end of table -->", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"<!-- cost -->.*?\n\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:#|\s*\|).*$", "", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text).replace("**", "").split())


def parts(page: Path) -> Iterator[str]:
    """What is known of a page's sentences."""
    name = str(page.relative_to(ROOT))
    for says, numbers in SENTENCES.get(name, {}).items():
        found = numbers()
        yield says.format(**found) if isinstance(found, dict) else says.format(*found)  # type: ignore[misc]
    for other, own in FINDINGS.items():
        if (ROOT / "docs" / "evidence" / other).resolve() == page:
            yield from (says.format(*numbers()) for says, numbers in own.items())  # type: ignore[misc]
    yield from GIVEN.get(name, ())


def unknown(text: str, known: list[str]) -> list[str]:
    """The numbers of a text outside the parts that are known, each with what is around it."""
    covered = [match.span() for match in NO_MEASUREMENT.finditer(text)]
    covered += [match.span() for part in known for match in re.finditer(re.escape(part), text)]
    return [
        text[max(0, match.start() - 30) : match.end() + 15]
        for match in NUMBER.finditer(text)
        if not any(start <= match.start() and match.end() <= end for start, end in covered)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_number_in_a_sentence_has_a_key(page: Path) -> None:
    known = list(parts(page))
    assert [part for part in known if part not in sentences(page)] == []
    assert unknown(sentences(page), known) == []


def test_every_page_with_keys_is_there() -> None:
    assert {*SENTENCES, *GIVEN} <= {str(page.relative_to(ROOT)) for page in PAGES}


@pytest.mark.parametrize(
    "says",
    [
        "a loss of 3.43 with BOS",
        "over 61 models",
        "lowers it by -0.02 nats",
        "takes 28 times as long",
        "in 40 % of cases",
    ],
)
def test_a_number_without_a_key_is_found(says: str) -> None:
    assert len(unknown(says, [])) == 1
    assert unknown(says, [says]) == []


@pytest.mark.parametrize(
    "says", ["`--tau 0.1`", "a 95 % interval", "torch 2.13.0", "Qwen2.5-Coder-0.5B", "8,192 tokens"]
)
def test_what_is_no_measurement_is_passed_over(says: str) -> None:
    assert unknown(says, []) == []
