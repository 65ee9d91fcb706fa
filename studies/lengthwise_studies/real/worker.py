"""One seed's jobs in one process: each is trained or asked by the library, and written down at once."""

from __future__ import annotations

import copy
import gc
import json
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback, TrainerControl, TrainerState

from lengthwise.checkpoints import extend
from lengthwise.machine import usable_device
from lengthwise.measure import run
from lengthwise.results import Results
from lengthwise.subjects import LoadedModel, load
from lengthwise.text import TokenDocuments, tokenize
from lengthwise.training.build import build_trainer, trainer_settings
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.trainer import AlignmentTrainer
from lengthwise_studies.real.design import ASKED, STUDY, Design, Job

_DROPPED = ("likelihoods", "question", "prompt", "crc", "chat")
"""Of records: what no number is made from."""
_ALMOST = 1.1
"""A job is begun if so many times the time of the last one of its kind is left."""


class OutOfTimeError(Exception):
    """The deadline passed while an arm was trained."""


@dataclass
class Worker:
    """What the jobs of a seed share: the texts as tokens, the clock, and the file of rows.

    Args:
        design, seed: what is done.
        out: the file that rows are appended to.
        adapters: the folder where trained weights are kept between jobs.
        deadline: of `time.monotonic()`; no job is begun that would not end before it.
        device: auto or cpu.
    """

    design: Design
    seed: int
    out: Path
    adapters: Path
    deadline: float
    device: str = "auto"
    spent: dict[str, float] = field(default_factory=dict)
    failed: int = 0
    _tokens: tuple[TokenDocuments, ...] = ()

    def run(self, jobs: list[Job]) -> None:
        """Every job for which there is time, in order."""
        for job in jobs:
            # The second of two tasks may be the longer one; arms of all methods take about as long.
            left = self.deadline - time.monotonic()
            if left < _ALMOST * self.spent.get(job.what, 0.0):
                self._write(job, {"left_out": f"{left:.0f} s were left"})
                continue
            if job.what == "ask" and not self._adapter(job).exists():
                self._write(job, {"left_out": "it was not trained"})
                continue
            started = time.monotonic()
            try:
                for rows in getattr(self, f"_{job.what}")(job):
                    self._write(job, *rows)
            except OutOfTimeError:
                self._write(job, {"left_out": "the time was up while it was trained"})
                return
            except Exception as error:
                # What comes after it can still be done: the time on a machine does not come again.
                traceback.print_exc()
                self._write(job, {"left_out": f"it failed: {type(error).__name__}: {error}"})
                self.failed += 1
                continue
            finally:
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
            self.spent[job.what] = time.monotonic() - started
            memory = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
            self._write(job, {"seconds": round(self.spent[job.what], 2), "memory_gib": round(memory, 1)})
            print(f"seed {self.seed}: {job}: {self.spent[job.what]:.1f} s, {memory:.0f} GiB", flush=True)

    def _train(self, job: Job) -> Iterator[list[dict[str, Any]]]:
        recipe = self.design.recipe(job.method, job.arm, self.seed)
        recipe = recipe.model_copy(update={"device": self.device})
        trainer, tokenizer = self._trainer(recipe)
        trainer.add_callback(_Clock(self.deadline))
        started = time.monotonic()
        trainer.train()
        if trainer.state.global_step < recipe.steps:
            raise OutOfTimeError
        steps = [entry for entry in trainer.state.log_history if "offset" in entry]
        yield [
            {"recipe": recipe.to_dict(), "seconds_of_steps": round(time.monotonic() - started, 2)},
            *({"step": number + 1, **_plain(step)} for number, step in enumerate(steps)),
        ]
        weights = {name: one.detach().cpu().contiguous() for name, one in _trained(trainer.model)}
        save_file(weights, self._adapter(job))
        with _evaluated(trainer):
            found = run(self.design.perplexity, self._model(trainer, tokenizer), self._read(tokenizer))
        yield _rows(found, job)

    def _ask(self, job: Job) -> Iterator[list[dict[str, Any]]]:
        recipe = self.design.recipe(job.method, job.arm, self.seed)
        trainer, tokenizer = self._trainer(recipe.model_copy(update={"device": self.device}))
        saved = load_file(self._adapter(job), device=str(trainer.args.device))
        with torch.no_grad():
            for name, parameter in _trained(trainer.model):
                parameter.copy_(saved[name])
        with _evaluated(trainer):
            measurement = self.design.questions(job.task, self.seed)
            found = run(measurement, self._model(trainer, tokenizer), self.design.texts[1])
        yield _rows(found, job)

    def _untrained(self, job: Job) -> Iterator[list[dict[str, Any]]]:
        arm = self.design.untrained(job.method)
        model = load(self.design.size.model, dtype="bfloat16", device=usable_device(self.device))
        if arm.method is not None:
            extend(model.model, arm.method, factor=arm.factor, original_length=self.design.size.trained)
        yield _rows(run(self.design.perplexity, model, self._read(model.tokenizer)), job)

    def _trainer(self, recipe: Recipe) -> tuple[AlignmentTrainer, Any]:
        """The recipe's Trainer on the documents of this study; nothing is saved while it runs."""
        loaded = load_for_training(recipe)
        settings = trainer_settings(recipe, self.adapters / f"seed{self.seed}") | {"save_strategy": "no"}
        self._read(loaded.tokenizer)
        return build_trainer(recipe, settings, loaded, self._tokens[0]), loaded.tokenizer

    def _model(self, trainer: AlignmentTrainer, tokenizer: Any) -> LoadedModel:
        """The model as it is, by the name that rows give it."""
        return LoadedModel(trainer.model, tokenizer, self.design.size.model, "memory")

    def _read(self, tokenizer: Any) -> TokenDocuments:
        """The held-out documents."""
        if not self._tokens:
            self._tokens = tuple(tokenize(text, tokenizer) for text in self.design.texts)
            # The questions are made beside the training. A tokenizer is not for two threads.
            reader = SimpleNamespace(tokenizer=copy.deepcopy(tokenizer))
            threading.Thread(target=self._make_questions, args=(reader,), daemon=True).start()
        return self._tokens[1]

    def _make_questions(self, reader: Any) -> None:
        for task in ASKED:
            self.design.questions(task, self.seed).items(reader, self.design.texts[1], reader)

    def _adapter(self, job: Job) -> Path:
        words = "-".join((job.method, *job.arm.split())).lower()
        return self.adapters / f"{words}-seed{self.seed}.safetensors"

    def _write(self, job: Job, *found: Mapping[str, Any]) -> None:
        facts = {
            "study": STUDY,
            "setting": self.design.setting(job.method),
            "arm": job.arm,
            "steps": 0 if job.what == "untrained" else self.design.size.steps,
            "seed": None if job.what == "untrained" else self.seed,
        }
        with self.out.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps({**facts, **one}) + "\n" for one in found)


class _Clock(TrainerCallback):
    """Stops a training whose time is up."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop |= time.monotonic() > self.deadline


@contextmanager
def _evaluated(trainer: AlignmentTrainer) -> Iterator[None]:
    """The Trainer's model as a measurement takes it, in the precision that it is trained in."""
    model: Any = trainer.model
    model.eval()
    with trainer.accelerator.autocast(), torch.no_grad():
        yield


def _trained(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, each) for name, each in model.named_parameters() if each.requires_grad]


def _plain(step: Mapping[str, Any]) -> dict[str, float]:
    names = ("loss", "cross_entropy", "cross_entropy_long", "cross_entropy_short", "entropy", "jeffreys")
    found = {name: step[name] for name in (*names, "offset", "grad_norm", "learning_rate") if name in step}
    return {name: round(float(value), 6) for name, value in found.items()}


def _rows(found: Results, job: Job) -> list[dict[str, Any]]:
    """The settings, and the record of every segment or question, from which all numbers can be made again."""
    records = [
        {"record": {name: value for name, value in record.items() if name not in _DROPPED}, "of": found.kind}
        for record in found.records.values()
    ]
    settings = {"settings": found.config, "of": found.kind, "model": found.provenance["model"]}
    seconds = {"read_in": found.provenance["seconds"], "of": found.kind}
    return [settings, seconds, *records]
