"""Tasks whose questions are made up, and kept in the cache.

The file's name is a hash of all that decides the questions (task, version, tokenizer, text, length, depths,
samples, seed). The file holds a hash of its content: a damaged one is made again.
"""

from __future__ import annotations

import abc
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.cache import cache_dir
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.evaluation.family import ANY_TASK, Question, QuestionSet, Task, questions_sha256
from lengthwise.files import atomic_write_bytes

if TYPE_CHECKING:
    from lengthwise.evaluation.settings import EvaluationSettings
    from lengthwise.text import Corpus

logger = logging.getLogger(__name__)

MADE_UP = ANY_TASK | {"lengths", "text", "split", "seed"}
"""Settings that each made-up task takes."""
SAMPLES = 10
"""Samples at each length and depth by default."""


@dataclass(frozen=True, kw_only=True)
class MadeUpTask(Task, abc.ABC):
    """A task whose prompts are made for a wanted length, from any text."""

    takes: frozenset[str] = MADE_UP | {"depths"}

    @abc.abstractmethod
    def make(
        self,
        tokenizer: Any,
        corpus: Corpus,
        *,
        length: int,
        depths: Sequence[float],
        samples: int,
        seed: int,
        stories: str | None,
    ) -> list[Question]:
        """The questions at one length. `depths` is empty for a task that takes none."""

    def check(self, spec: EvaluationSettings) -> None:
        """Refuse lengths over `max_length`."""
        if spec.max_length is not None and max(spec.lengths) > spec.max_length:
            raise UsageError(
                f"{self.name} is made for {max(spec.lengths)} tokens, and max_length is {spec.max_length}",
                fix="shorter lengths; or data sets, which max_length is for, in a run of their own",
            )

    def question_set(self, spec: EvaluationSettings, tokenizer: Any, corpus: Corpus | None) -> QuestionSet:
        """The questions at all lengths, from the cache where it has them."""
        from lengthwise.text import tokenizer_fingerprint

        assert corpus is not None
        fingerprint = tokenizer_fingerprint(tokenizer)
        found: list[Question] = []
        for length in sorted(spec.lengths):
            settings: dict[str, Any] = {
                "length": length,
                "depths": sorted(spec.depths) if "depths" in self.takes else [],
                "samples": spec.samples or SAMPLES,
                "seed": spec.seed,
                "stories": spec.stories if "stories" in self.takes else None,
            }
            identity = settings | {
                "task": self.name,
                "version": self.version,
                "tokenizer": fingerprint,
                "text": corpus.fingerprint,
            }

            def make(settings: dict[str, Any] = settings) -> list[Question]:
                return self.make(tokenizer, corpus, **settings)

            # The user's own files can change under their name.
            found += make() if settings["stories"] is not None else _cached(identity, make)
        return QuestionSet(found)


def _cached(identity: dict[str, Any], make: Callable[[], list[Question]]) -> list[Question]:
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    path = cache_dir() / "questions" / f"{key}.jsonl"
    if path.exists():
        try:
            header, *lines = path.read_text(encoding="utf-8").split("\n")
            questions = [Question(**json.loads(line)) for line in lines if line]
            if json.loads(header)["sha256"] == questions_sha256(questions):
                return questions
        except (ValueError, TypeError, KeyError):
            pass
        logger.warning("the cached questions in %s are damaged and are made again", path)
    questions = make()
    header = json.dumps({**identity, "sha256": questions_sha256(questions)})
    body = "".join(json.dumps(question.to_dict()) + "\n" for question in questions)
    try:
        atomic_write_bytes(path, f"{header}\n{body}".encode())
    except LengthwiseError as error:
        logger.warning("the questions are not cached: %s", error.problem)
    return questions
