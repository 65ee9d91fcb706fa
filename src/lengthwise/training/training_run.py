"""One training run: recipe in; checkpoints, metrics, model and results out."""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState

from lengthwise.checkpoints import FullLogits
from lengthwise.checkpoints.damage import is_damage
from lengthwise.checkpoints.hidden import parameter_counts
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import Interrupted, LengthwiseError, require_kind, require_known
from lengthwise.files import atomic_write_text, first_damaged, seal, writing
from lengthwise.machine import is_main_process, process_count
from lengthwise.progress import progress
from lengthwise.results import Results, Row, read_metrics
from lengthwise.run_files import finished_results
from lengthwise.runs import RunFolder
from lengthwise.subjects import LoadedModel
from lengthwise.text import left_out_note
from lengthwise.training.build import build_trainer, trainer_settings
from lengthwise.training.recipe import Recipe
from lengthwise.training.sections import lower_is_better
from lengthwise.training.starting_model import load_for_training, training_documents
from lengthwise.training.trainer import logged_parts

logger = logging.getLogger(__name__)


def train(recipe: Recipe, out: Path | str, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Train as `recipe` says.

    The run folder `out` then holds `checkpoints/` (the Trainer's), `metrics.jsonl` (one line per step), `model/`
    (the whole model or the adapter, with the tokenizer; `lengthwise.load` reads it) and `results.json`, whose
    rows are the means of each logged number over the first and the last tenth of the steps.

    Sets the seeds of Python, numpy and torch. The result does not depend on how a step is cut into
    micro-batches and processes, nor (to the bit, at equal numbers of threads) on interruptions.

    Args:
        recipe: what is run.
        out: the run folder. Under torchrun the main process alone holds and writes it.
        resume: continue from the last whole checkpoint, if there is one; read the results of a finished run.
        overwrite: replace what an earlier run left in `out`.

    Raises:
        UsageError: the recipe cannot work with this model, text or number of processes; as `RunFolder`.
        LengthwiseError: a loss or gradient is NaN or infinite, or a file cannot be written. The checkpoints stay.
        Interrupted: Ctrl-C; the checkpoints stay, and `partial` has the results so far.
    """
    require_kind("the recipe", recipe, Recipe, "a Recipe, or read_recipe(PATH)")
    if not is_main_process():
        return _train(recipe, Path(out), None, resume=resume)
    with RunFolder(
        out,
        kind="train",
        config=recipe.to_dict(),
        writes=("metrics.jsonl", "checkpoints", "model"),
        resume=resume,
        overwrite=overwrite,
    ) as folder:
        return _train(recipe, folder.path, folder, resume=resume)


def run_inputs(loaded: LoadedModel, corpus_fingerprint: str) -> dict[str, dict[str, str]]:
    """What `inputs.json` of a run holds: fingerprints of the model that it starts from and of its text."""
    model = loaded.fingerprint()
    return {"model": model, "text": {"corpus": corpus_fingerprint, "tokenizer": model["tokenizer"]}}


def _train(recipe: Recipe, path: Path, folder: RunFolder | None, *, resume: bool) -> Results:
    if resume and (finished := finished_results(path)):
        return finished
    settings = trainer_settings(recipe, path / "checkpoints")
    loaded = load_for_training(recipe)
    documents, facts = training_documents(recipe, loaded.tokenizer)
    checkpoint = last_complete_checkpoint(path / "checkpoints") if resume else None
    resumed_at = 0 if checkpoint is None else checkpoint_step(checkpoint)
    settings["eval_on_start"] = recipe.eval is not None and checkpoint is None
    if folder is not None:
        folder.check_inputs(run_inputs(loaded, facts["corpus_fingerprint"]))
        forget_steps_after(path, resumed_at)
    kept = vars(loaded.model.config).get("use_cache")
    keeper = _Keeper(recipe, loaded.tokenizer, folder)
    trainer = build_trainer(recipe, settings, loaded, documents, callbacks=[keeper])

    started = time.perf_counter()
    interrupted = False
    try:
        with writing(path), quiet_transformers():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            # The Trainer switches it off in the configuration, which is saved with the model. A model of images and
            # texts has it in that of its texts alone.
            if kept is None:
                vars(loaded.model.config).pop("use_cache", None)
            else:
                loaded.model.config.use_cache = kept
            # All processes gather the weights of a sharded model, in main memory.
            weights = trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None
            if folder is not None:
                shutil.rmtree(path / "model", ignore_errors=True)
                save_whole(
                    trainer.model, loaded.tokenizer, path / "model", base=recipe.model, weights=weights
                )
    except KeyboardInterrupt:
        interrupted = True
    except Exception as error:
        if checkpoint is None or not is_damage(error):
            raise
        fix = "remove it, and --resume from the checkpoint before it"
        raise LengthwiseError(f"{checkpoint} is damaged", fix=fix) from error
    finally:
        keeper.close()

    parameters, trained = parameter_counts(trainer.model)
    facts |= {
        "seconds": round(time.perf_counter() - started, 3),
        "resumed_at_step": resumed_at,
        "processes": process_count(),
        "device": str(trainer.args.device),
        "parameters": parameters,
        "trainable_parameters": trained,
        "remarks": loaded.remarks,
        "full_logits": trainer.head.reason if isinstance(trainer.head, FullLogits) else None,
    }
    results = _results(recipe, trainer.state, facts, partial=interrupted)
    if folder is not None:
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


def checkpoint_step(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def checkpoints_in(folder: Path) -> list[Path]:
    """Every `checkpoint-N` in `folder`, the newest first."""
    found = (path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal() and path.is_dir())
    return sorted(found, key=checkpoint_step, reverse=True)


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` whose files are what was saved; a warning names each newer, damaged one."""
    for checkpoint in checkpoints_in(folder):
        if (damaged := first_damaged(checkpoint)) is None:
            return checkpoint
        logger.warning("%s is damaged or missing: an earlier checkpoint is used", checkpoint / damaged)
    return None


def forget_steps_after(run: Path, step: int) -> None:
    """Drop what a run that continues from a step will write again: later metrics and half-written checkpoints."""
    path = run / "metrics.jsonl"
    if path.exists():
        kept = [record for record in read_metrics(path) if record["step"] <= step]
        atomic_write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
    for checkpoint in checkpoints_in(run / "checkpoints"):
        if checkpoint_step(checkpoint) > step:
            shutil.rmtree(checkpoint)


class _Keeper(TrainerCallback):
    """Keeps a line of metrics per step and whole checkpoints, and shows a bar with the latest loss.

    Of the checkpoints those of `save_at` and the last two stay. Processes without the run folder only ask for them.
    """

    def __init__(self, recipe: Recipe, tokenizer: Any, folder: RunFolder | None) -> None:
        self._recipe = recipe
        self._tokenizer = tokenizer
        self._folder = folder
        self._bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (held := self._recipe.eval) is not None and state.best_global_step:
            # This run is resumed. Its checkpoint names the best one by the path of that time, and the folder may have
            # moved since: transformers then forgets the best model.
            best = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
            if held.keep_best and not best.is_dir():
                raise LengthwiseError(
                    f"{best}, the best of this run, is not there", fix="--overwrite starts again"
                )
            state.best_model_checkpoint = str(best)
            stored: Any = state.stateful_callbacks
            stopper = stored.get(EarlyStoppingCallback.__name__, {}).get("attributes", {})
            worse = stopper.get("early_stopping_patience_counter", 0)
            control.should_training_stop |= held.patience is not None and worse >= held.patience
        if self._folder is not None:
            steps = state.max_steps
            self._bar = progress(range(steps), what="training", total=steps, initial=state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_save |= state.global_step in self._recipe.save_at

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        held = self._recipe.eval
        assert held is not None
        # Behind the measurements, whose names are known only now.
        require_known(held.metric, kwargs["metrics"], "eval.metric is in no evaluation:")
        # The Trainer finds the best model only among those that are saved.
        control.should_save |= held.keep_best and state.global_step > 0

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        logs = kwargs["logs"]
        # The Trainer's closing log is that of no step.
        evaluated = any(name.startswith("eval_") for name in logs)
        if self._folder is None or self._bar is None or not (evaluated or "offset" in logs):
            return
        metrics = {name: value for name, value in logs.items() if name != "epoch"}
        self._folder.append_metrics({"step": state.global_step, **metrics})
        if evaluated:
            return
        self._bar.set_postfix(loss=f"{logs['loss']:.4f}", refresh=False)
        self._bar.update(state.global_step - self._bar.n)

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if args.world_size > 1:
            # Every process writes its own random state into the folder.
            torch.distributed.barrier()
        if not state.is_world_process_zero:
            return
        # The Trainer has written its files. The seal marks the checkpoint as whole.
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._tokenizer.save_pretrained(checkpoint)
        seal(checkpoint, hashes=False)
        for older in checkpoints_in(checkpoint.parent)[2:]:
            best = str(older) == state.best_model_checkpoint
            if checkpoint_step(older) not in self._recipe.save_at and not best:
                shutil.rmtree(older)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _results(recipe: Recipe, state: TrainerState, facts: dict[str, Any], *, partial: bool) -> Results:
    """Each logged number's mean over the first and the last tenth of the steps, and the best evaluation."""
    steps = [entry for entry in state.log_history if "offset" in entry]
    tenth = max(1, len(steps) // 10)
    rows = [
        Row(
            model=recipe.model,
            task="training",
            metric=f"{name}_{when}",
            value=sum(step[name] for step in part) / len(part) if part else None,
            n=len(part),
            length=recipe.length,
            seed=recipe.seed,
        )
        for when, part in (("first", steps[:tenth]), ("last", steps[-tenth:]))
        for name in ("loss", *logged_parts(recipe.objective))
    ]
    notes = [
        f"Training values are means over the first and the last {tenth} of {len(steps)} steps (n counts "
        "steps), on the training text, without intervals.",
        *recipe.notes,
        *left_out_note(facts["left_out"], facts["documents"]),
        *(f"{recipe.model}: {remark}" for remark in facts["remarks"]),
    ]
    if recipe.eval is not None and state.best_metric is not None:
        kept = "the model is of that step" if recipe.eval.keep_best else "the model is of the last step"
        best, ended = state.best_global_step, f"{state.global_step} of {recipe.steps} steps"
        name, reached = recipe.eval.metric, state.best_metric
        start = next((log[name] for log in state.log_history if log["step"] == 0 and name in log), math.nan)
        notes += [
            f"Best {name}: {reached:.4f} after step {best}, {start:.4f} before training; {ended} were run; {kept}."
        ]
        if start < reached if lower_is_better(name) else start > reached:
            notes += [f"No evaluation has a better {name} than the model before training: use that one."]
    notes += [f"Interrupted after {len(steps)} of {recipe.steps} steps."] if partial else []
    notes += [f"Full logits were used: {facts['full_logits']}"] if facts["full_logits"] else []
    return Results(
        kind="train",
        model_name=recipe.model,
        config=recipe.to_dict(),
        rows=rows,
        notes=notes,
        partial=partial,
        provenance=facts,
    )
