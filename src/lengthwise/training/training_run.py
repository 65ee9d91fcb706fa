"""One training run: recipe in; checkpoints, metrics, model and results out."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise.files import writing
from lengthwise.models import FullLogits, LoadedModel
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import is_damage
from lengthwise.models.saving import save_whole
from lengthwise.processes import is_main_process, process_count
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import RunFolder, is_finished
from lengthwise.text import left_out_note, load_corpus
from lengthwise.training.build import build_trainer, training_documents
from lengthwise.training.callbacks import (
    MetricsLog,
    TrainingProgress,
    WholeCheckpoints,
    checkpoint_step,
    checkpoints_in,
    forget_metrics_after,
    last_complete_checkpoint,
)
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.trainer import logged_parts


@contextlib.contextmanager
def open_run(
    path: Path | str, recipe: Recipe, *, resume: bool = False, overwrite: bool = False
) -> Iterator[RunFolder | Path]:
    """The run folder at `path` for `train`: held and written by the main process alone.

    The other processes of torchrun get the bare path.

    Raises:
        UsageError, LengthwiseError: as `RunFolder`.
    """
    if not is_main_process():
        yield Path(path)
        return
    with RunFolder(
        path,
        kind="train",
        config=recipe.to_dict(),
        writes=("metrics.jsonl", "checkpoints", "model"),
        resume=resume,
        overwrite=overwrite,
    ) as folder:
        yield folder


def train(
    recipe: Recipe, out: RunFolder | Path | str, *, resume: bool = False, overwrite: bool = False
) -> Results:
    """Train as `recipe` says.

    The run folder `out` then holds `checkpoints/` (the Trainer's), `metrics.jsonl` (one line per step), `model/`
    (the whole model or the adapter, with the tokenizer; `lengthwise.load` reads it) and `results.json`, whose
    rows are the means of each logged number over the first and the last tenth of the steps.

    Sets the seeds of Python, numpy and torch. The result does not depend on how a step is cut into
    micro-batches and processes, nor (to the bit, at equal numbers of threads) on interruptions.

    Args:
        recipe: a checked recipe.
        out: the run folder. Under torchrun the main process alone writes it.
        resume: continue from the last whole checkpoint, if there is one; read the results of a finished run.
        overwrite: delete what an earlier run left in `out`.

    Raises:
        UsageError: something in the recipe cannot work with this model, text or number of processes; `out`
            holds a run and neither `resume` nor `overwrite` is set, or a run with other settings.
        LengthwiseError: a loss or gradient is NaN or infinite, the disk is full, memory runs out. The
            checkpoints stay.
        Interrupted: Ctrl-C; the checkpoints stay, and `partial` has the results so far.
    """
    if isinstance(out, RunFolder):
        return _train(recipe, out, resume=resume)
    with open_run(out, recipe, resume=resume, overwrite=overwrite) as folder:
        return _train(recipe, folder, resume=resume)


def train_or_resume(recipe: Recipe, folder: Path | str) -> Path:
    """Train in `folder`, or continue or read the run of the same recipe there; its model's folder.

    Raises:
        UsageError, LengthwiseError, Interrupted: as `train`.
    """
    train(recipe, folder, resume=(Path(folder) / "config.yaml").exists())
    return Path(folder) / "model"


def inputs_of(recipe: Recipe) -> dict[str, dict[str, str]]:
    """What `inputs.json` of a run of this recipe holds: fingerprints of the model it starts from and of its text.

    Sets the seeds of Python, numpy and torch.

    Raises:
        UsageError, MissingError: as `load_for_training` and `load_corpus`.
    """
    data = recipe.data
    corpus = load_corpus(data.corpus, split=data.split, text_field=data.text_field)
    return _inputs(load_for_training(recipe), corpus.fingerprint)


def _inputs(loaded: LoadedModel, corpus_fingerprint: str) -> dict[str, dict[str, str]]:
    model = model_fingerprint(loaded)
    return {"model": model, "text": {"corpus": corpus_fingerprint, "tokenizer": model["tokenizer"]}}


def _train(recipe: Recipe, folder: RunFolder | Path, *, resume: bool) -> Results:
    path = folder.path if isinstance(folder, RunFolder) else folder
    if resume and is_finished(path):
        return read_results(path / "results.json")
    # Refuses a step that cannot be cut over the processes, before the model is loaded.
    recipe.batch.accumulation(process_count())
    loaded = load_for_training(recipe)
    documents, facts = training_documents(recipe, loaded)
    if isinstance(folder, RunFolder):
        folder.check_inputs(_inputs(loaded, facts["corpus_fingerprint"]))
    checkpoint = last_complete_checkpoint(path / "checkpoints") if resume else None
    if isinstance(folder, RunFolder):
        _forget_what_will_be_redone(path, checkpoint)
    use_cache = loaded.model.config.use_cache
    bar = TrainingProgress()
    trainer = build_trainer(recipe, path / "checkpoints", loaded, documents)
    trainer.add_callback(WholeCheckpoints(loaded.tokenizer, recipe.checkpoints))
    trainer.add_callback(bar)
    if isinstance(folder, RunFolder):
        trainer.add_callback(MetricsLog(folder.append_metrics))

    started = time.perf_counter()
    interrupted = False
    try:
        with _clear_errors(path, checkpoint), quiet_transformers():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            # The Trainer switches it off in the configuration, which is saved with the model.
            loaded.model.config.use_cache = use_cache
            # All processes gather the weights of a sharded model, in main memory.
            weights = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
            if isinstance(folder, RunFolder):
                shutil.rmtree(path / "model", ignore_errors=True)
                save_whole(trainer.model, loaded.tokenizer, path / "model", weights=weights)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        bar.close()

    facts |= {
        "seconds": round(time.perf_counter() - started, 3),
        "resumed_at_step": 0 if checkpoint is None else checkpoint_step(checkpoint),
        "processes": process_count(),
        "device": str(trainer.args.device),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "trainable_parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "full_logits": trainer.head.reason if isinstance(trainer.head, FullLogits) else None,
    }
    results = training_results(recipe, trainer.state.log_history, facts, partial=interrupted)
    if isinstance(folder, RunFolder):
        folder.write_results(results)
    if interrupted:
        kept = last_complete_checkpoint(path / "checkpoints")
        raise Interrupted(
            f"training was interrupted after step {trainer.state.global_step} of {recipe.steps}; "
            + ("no checkpoint was saved yet" if kept is None else f"the last checkpoint is {kept}"),
            partial=results,
            fix="--resume continues from the last checkpoint",
        )
    return results


def _forget_what_will_be_redone(path: Path, checkpoint: Path | None) -> None:
    """Half-written checkpoints, and metrics of steps after the checkpoint from which training continues."""
    step = 0 if checkpoint is None else checkpoint_step(checkpoint)
    forget_metrics_after(path / "metrics.jsonl", step)
    for other in checkpoints_in(path / "checkpoints"):
        if checkpoint_step(other) > step:
            shutil.rmtree(other)


@contextlib.contextmanager
def _clear_errors(path: Path, checkpoint: Path | None) -> Iterator[None]:
    """Turn failed writes, exhausted memory and a damaged checkpoint into errors that say so."""
    try:
        with writing(path):
            yield
    except (RuntimeError, pickle.UnpicklingError, SafetensorError) as error:
        if checkpoint is not None and is_damage(error):
            raise LengthwiseError(
                f"{checkpoint} is damaged", fix="remove it, and --resume from the checkpoint before it"
            ) from error
        if "out of memory" in str(error).lower():
            raise LengthwiseError(
                f"out of memory: {str(error).splitlines()[0]}",
                fix="lower batch.micro (the result stays the same), or set gradient_checkpointing: true",
            ) from error
        raise


def training_results(
    recipe: Recipe, history: list[dict[str, Any]], facts: dict[str, Any], *, partial: bool
) -> Results:
    """The results of a run: each logged number's mean over the first and the last tenth of the steps.

    Args:
        recipe: what was run.
        history: the Trainer's log.
        facts: the run's provenance.
        partial: whether the run was interrupted.
    """
    steps = [entry for entry in history if "offset" in entry]
    tenth = max(1, len(steps) // 10)
    rows: list[Row] = []
    for when, part in (("first", steps[:tenth]), ("last", steps[-tenth:])):
        for name in ("loss", *logged_parts(recipe.objective)):
            value = sum(step[name] for step in part) / len(part) if part else None
            rows.append(
                Row(
                    model=recipe.model,
                    task="training",
                    metric=f"{name}_{when}",
                    value=value,
                    length=recipe.length,
                    seed=recipe.seed,
                    n=len(part),
                )
            )
    notes = [
        f"Training values are means over the first and the last {tenth} of {len(steps)} steps (n counts "
        "steps), on the training text, without intervals."
    ]
    notes += recipe.notes
    notes += left_out_note(facts.get("left_out", {}), facts.get("documents", 0))
    if partial:
        notes.append(f"Interrupted after {len(steps)} of {recipe.steps} steps.")
    if facts["full_logits"]:
        notes.append(f"Full logits were used: {facts['full_logits']}")
    return Results(
        kind="train",
        model_name=recipe.model,
        config=recipe.to_dict(),
        rows=rows,
        notes=notes,
        partial=partial,
        provenance=facts,
    )
