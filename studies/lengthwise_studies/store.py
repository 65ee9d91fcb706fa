"""The store of arms: what any study has trained or measured is read from here when a study asks for it again.

    CACHE/arms/ARM/train/                    the run folder of the training
    CACHE/arms/ARM/MEASURE-SETTINGS.jsonl    the samples of a measurement

ARM is the hash of the recipe and of the fingerprints of its model and its text. SETTINGS is the hash of the
measurement and of the fingerprint of the text that it reads. Both name the version of the code that decides the
numbers (`VERSIONS`). Neither has names of texts, of arms or of models (but for the evaluator of LongPPL), nor
settings at their defaults: a setting that is added later changes no key. Interrupted work continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock

from lengthwise.files import atomic_write_json, cache_dir
from lengthwise.machine import is_main_process
from lengthwise.measure import MEASUREMENTS, Measurement, run
from lengthwise.results import Results
from lengthwise.run_files import finished_results
from lengthwise.samples import SampleLog
from lengthwise.subjects import LoadedModel
from lengthwise.text import Corpus, load_corpus, tokenize
from lengthwise.training import train
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.training_run import run_inputs
from lengthwise.yaml_text import parse_yaml, read_yaml, to_yaml
from lengthwise_studies.arms import Measures
from lengthwise_studies.recall import Recall
from lengthwise_studies.sparsity.influence_measure import Influence

MEASURES: dict[str, type[Measurement]] = {
    kind.about.task or kind.about.kind: kind
    for kind in (*(entry.measurement for entry in MEASUREMENTS.values()), Influence, Recall)
}
MEASURES["eval longbench_e"] = MEASURES["eval"]
"""The measurements by the names that scales use: the task of their rows, "eval" for questions."""
VERSIONS: dict[str, int] = {}
"""What decides the numbers of an arm ("train", or a kind of measurement) -> the version of its code, from 2 on.

Whoever changes the numbers of one raises its version, and every study trains or measures it again.
"""
_NO_WEIGHTS = {"model", "data", "save_at", "save_every", "device", "report_to"}
"""Keys of a recipe that decide nothing about the weights, or whose contents have fingerprints."""


def store_folder() -> Path:
    """The folder of all arms. On a cluster it must be one that every machine sees: set LENGTHWISE_CACHE."""
    return cache_dir() / "arms"


def key_of(what: Mapping[str, Any]) -> str:
    """The hash of plain settings, in 20 hexadecimal digits."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]


def recipe_key(recipe: Recipe) -> str:
    """The key of a training: equal for recipes that give equal weights."""
    plain = recipe.to_dict(defaults=False)
    settings = {name: value for name, value in plain.items() if name not in _NO_WEIGHTS}
    settings["data"] = {name: value for name, value in plain["data"].items() if name in ("packing", "bos")}
    # Loading a model again for every arm would take longer than some arms.
    read = to_yaml({name: plain[name] for name in _READ if name in plain})
    if read not in _INPUTS:
        data = recipe.data
        corpus = load_corpus(data.corpus, **data.of_text())
        _INPUTS[read] = run_inputs(load_for_training(recipe), corpus.fingerprint)
    return key_of({"recipe": settings, "inputs": _INPUTS[read], **_version("train")})


def _version(name: str) -> dict[str, int]:
    """Nothing for the first version: what was made before there were versions has it."""
    return {"version": VERSIONS[name]} if name in VERSIONS else {}


_READ = ("model", "extend", "seed", "shifted_sparse", "quantize", "precision", "adapter", "device", "data")
"""The keys of a recipe that decide which model and text a training reads; the seed draws CLEX's own weights."""
_INPUTS: dict[str, dict[str, Any]] = {}
"""Fingerprints by these keys, in this process."""


def trained(recipe: Recipe) -> Path:
    """The folder of the arm that this recipe trains, trained now if it is not there; raises what `train` does."""
    folder = store_folder() / recipe_key(recipe)
    with _held(folder / ".lock"):
        run_folder = folder / "train"
        checkpoints = (run_folder / "checkpoints" / f"checkpoint-{step}" for step in recipe.save_at)
        if not (finished_results(run_folder) is not None and all(path.is_dir() for path in checkpoints)):
            # Another study may have begun it with other checkpoints to keep, or from a folder of another name.
            plain = parse_yaml(to_yaml({"kind": "train", **recipe.to_dict()}), source="recipe")
            config = run_folder / "config.yaml"
            same = config.is_file() and read_yaml(config) == plain
            train(recipe, run_folder, resume=same, overwrite=not same)
    return folder


def measured(
    model: LoadedModel,
    text: Corpus,
    measures: Measures,
    folder: Path,
    *,
    evaluator: str | None = None,
    **facts: Any,
) -> tuple[dict[str, Results], dict[str, str]]:
    """Every measurement of a model of an arm, by name, and the file of its samples below the store (in `folder`).

    Args:
        evaluator: the model that finds the key tokens of LongPPL: one for all arms, so that all have the same.
        facts: what else distinguishes this model from others of the same arm: dtype, extension, steps.
    """
    found: dict[str, Results] = {}
    files: dict[str, str] = {}
    # One call for all measurements: the text is tokenised once.
    documents = tokenize(text, model.tokenizer)
    for name, settings in measures.items():
        measurement = MEASURES[name](**settings)
        by = evaluator if measurement.about.kind == "longppl" else None
        what = {
            "measurement": measurement.about.kind,
            "settings": measurement.model_dump(mode="json", exclude_defaults=True),
            "text": text.fingerprint,
            "evaluator": None if by is None else Path(by).name,
            **_version(measurement.about.kind),
            **facts,
        }
        log = folder / f"{name.replace(' ', '-')}-{key_of(what)}.jsonl"
        # Of a model that is extended without training, several arms are measured at once.
        with _held(log.with_suffix(".lock")):
            if is_main_process() and not log.with_suffix(".json").exists():
                atomic_write_json(log.with_suffix(".json"), what)
            found[name] = run(
                measurement,
                model,
                (documents if measurement.reads == "tokens" else text) if measurement.reads else None,
                other=by,
                log=SampleLog(log),
            )
        files[name] = str(log.relative_to(store_folder()))
    return found, files


def arm_folder(results: Results, label: str) -> Path:
    """The folder of an arm, which `results` of an experiment names."""
    return (store_folder() / next(iter(results.provenance["arms"][label].values()))).parent


def sample_log(results: Results, label: str, measure: str) -> SampleLog:
    """The samples of a measure of one arm, which `results` of an experiment names."""
    return SampleLog(store_folder() / results.provenance["arms"][label][measure])


def _held(lock: Path) -> AbstractContextManager[Any]:
    """One process at a time; those of torchrun train and measure together, and rank 0 holds the lock."""
    if not is_main_process():
        return nullcontext()
    lock.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock)
