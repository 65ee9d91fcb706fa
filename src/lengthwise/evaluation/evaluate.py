"""`lengthwise eval` as a measurement: its items are questions, of our own tasks or of lm-eval's.

run(Evaluation(tasks=("babilong_qa1",), lengths=(2048,)), "smollm2-135m", out="runs/e")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.evaluation import native
from lengthwise.evaluation.family import ANY_TASK, Task
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.evaluation.tasks import FAMILIES, resolve_tasks
from lengthwise.measure.measurement import Item, Reader, Record
from lengthwise.measure.statistics import Statistic
from lengthwise.processes import process_count
from lengthwise.results import Results, Row

if TYPE_CHECKING:
    from lengthwise.models import Predictor
    from lengthwise.settings import Subject
    from lengthwise.text import Corpus

# What lm-eval's tasks take of the settings that only some tasks take.
_LM_EVAL_TAKES = frozenset({"lengths", "samples", "data", "max_length", "truncation", "seed"})
_ANY_RUN = frozenset(
    {
        "model",
        "adapter",
        "dtype",
        "device",
        "device_map",
        "tp_plan",
        "quantize",
        "served_model",
        "tokenizer",
        "tasks",
        "backend",
        "batch_size",
    }
)


class Evaluation(EvaluationSettings):
    """Does a model answer questions over long input?

    Needles, BABILong by length and depth, LongBench-E, or any task of lm-eval. No prompt is cut unless you say
    how, and every result says how many were cut.
    """

    kind = "eval"
    units = "samples"
    levels = ("chance",)
    examples = (
        "lengthwise eval smollm2-135m needle_multi_key --length 2048 --length 4096",
        "lengthwise eval smollm2-135m babilong --mode likelihood --length 2048 --limit 20 --out runs/babilong",
        "lengthwise eval ./my-model longbench_e --data LongBench/data --max-length 3500 --truncation middle",
        "lengthwise eval ./my-model longbench_qasper_e --backend lm-eval --max-length 16384 --out runs/harness",
    )
    reads = "questions"
    # The source of the questions (data, stories, templates) shows in the questions themselves.
    beside_the_numbers = ("batch_size", "data", "stories", "templates")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.depths)) < len(self.depths):
            raise UsageError(f"a depth is given twice: {self.depths}")
        self.refuse_untaken(self.model_fields_set)
        if self.backend == "lm-eval":
            if self.max_length is None:
                raise UsageError(
                    "lm-eval needs the greatest number of tokens of prompt and reply together",
                    expected="--max-length TOKENS, the context that the model is evaluated at",
                )
            return self
        without = [task.name for task in self.own_tasks if not task.ranks]
        if self.mode == "likelihood" and without:
            raise UsageError(
                f"{', '.join(without)} have no answers to rank by likelihood",
                fix="use --mode greedy for them",
            )
        for task in self.own_tasks:
            task.check(self)
        return self

    @property
    def own_tasks(self) -> list[Task]:
        """Our own tasks of the run; none with lm-eval's."""
        return resolve_tasks(self.tasks) if self.backend == "native" else []

    @property
    def needs_text(self) -> bool:
        """Whether a task is made from a text."""
        return any("text" in task.takes for task in self.own_tasks)

    def refuse_untaken(self, given: Iterable[str]) -> None:
        """Raise UsageError if `given` names a setting that no task of the run takes; None is not a setting."""
        if self.backend == "lm-eval":
            takes, who = _LM_EVAL_TAKES, "lm-eval"
        else:
            takes = ANY_TASK.union(*(task.takes for task in self.own_tasks))
            who = "no task of this run"
        for name in sorted(given):
            if name in _ANY_RUN or name in takes or getattr(self, name, "") is None:
                continue
            takers = [family.name for family in FAMILIES if any(name in task.takes for task in family.tasks)]
            raise UsageError(
                f"{name} is given, and {who} {'does not take' if who == 'lm-eval' else 'takes'} it",
                expected=f"a task of {', '.join(takers)}",
                fix=f"leave {name} out",
            )

    def check_subject(self, run: Subject) -> Subject:
        """Refuse settings of the run that no task takes, and lm-eval in several processes."""
        self.refuse_untaken(run.model_fields_set)
        if self.backend == "lm-eval" and process_count() > 1:
            raise UsageError(
                f"lm-eval in {process_count()} processes",
                expected="one process, or tasks of --backend native",
                fix="run it without torchrun",
            )
        return run

    def items(self, model: Reader, text: Corpus | None, other: Reader) -> list[Item]:
        """All questions, or lm-eval's requests."""
        return self._backend.items(self, model.tokenizer, text)

    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """Questions on one context together; the longest first, so that too little memory shows at once."""
        return self._backend.batches(self, items)

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Refuse what lm-eval cannot read: an endpoint, prompts over the limit."""
        if self.backend == "lm-eval":
            self._backend.check(self, model, items)

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The score of each question with its reply or likelihoods; of a request its reply."""
        return self._backend.score(self, model, items)

    def finish(
        self, model: Predictor, items: Sequence[Item], records: Mapping[str, Record]
    ) -> dict[str, Record]:
        """lm-eval's scores, which it makes from all replies."""
        return self._backend.finish(self, model, items, records) if self.backend == "lm-eval" else {}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """Rows of each task by length and depth (or bucket), by length over all depths, and of each family.

        The bootstrap resamples units: samples (each with all its depths and tasks) or rows of a data set.
        """
        return self._backend.statistics(self, records)

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The scores with their intervals."""
        return self._backend.rows(statistics, records)

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """Version, metric and questions of each task."""
        return self._backend.describe(items, records)

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """Questions by task, and which are cut."""
        return self._backend.plan(items)

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What was cut, how scores and averages are meant."""
        from lengthwise.models import LoadedModel
        from lengthwise.models.position_limits import rope_by_input_length

        notes = self._backend.notes(self, items, results)
        method = rope_by_input_length(model.config) if isinstance(model, LoadedModel) else None
        if method is not None:
            notes.append(
                f"The positions of {method} depend on how much is read in one pass: a shared context is read at "
                "its own length, and replies continue it, as with transformers' generate."
            )
        return notes

    @property
    def _backend(self) -> Any:
        """The module with the functions of the backend; lm-eval's is imported when it is used, with torch."""
        if self.backend == "native":
            return native
        from lengthwise.evaluation import lm_eval_backend

        return lm_eval_backend
