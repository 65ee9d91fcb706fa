"""The adapter of a training run, merged into its model."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.hidden import accepted, parameter_counts, unwrap
from lengthwise.checkpoints.loading import DTYPES, load_weights
from lengthwise.checkpoints.position_limits import max_positions
from lengthwise.checkpoints.resolve import quiet_transformers, read_config
from lengthwise.checkpoints.saving import check_whole_weights, new_folder, save_whole
from lengthwise.checkpoints.stored_weights import is_4bit
from lengthwise.checkpoints.variants import add_saved_adapter, check_adapter
from lengthwise.errors import LengthwiseError, MissingError, UsageError, reason, require_known
from lengthwise.files import named_path
from lengthwise.run_files import finished_results, read_inputs
from lengthwise.subjects import LoadedModel
from lengthwise.training.recipe import Recipe, read_recipe
from lengthwise.training.starting_model import load_for_training

logger = logging.getLogger(__name__)

_SAID = 0.1
"""The share of the adapter's effect from which on its loss by rounding is said."""
_MERGED = 1e-4
"""By how much of the largest logit a merged model may be off: products are summed in another order."""


def merge_run(run: Path | str, out: Path | str, *, dtype: str = "float32") -> dict[str, Any]:
    """Merge a run's adapter into its base model, and save that with the tokenizer and a model card.

    The base weights are those that the adapter was trained on: 4-bit weights are dequantised, the weights before
    quantisation are not used. The merge is in float32 and rounded once, to `dtype`. `out` is written whole or not at
    all. Returns what was done, in plain values.

    Raises:
        UsageError: the run has no adapter, or one that cannot be merged into these weights; `out` is not empty.
        MissingError: there is no finished run, or the base model is missing.
    """
    run, out = named_path(run, what="the run"), new_folder(out)
    adapter = run / "model"
    require_known(dtype, DTYPES, "unknown dtype")
    if not (run / "config.yaml").is_file() or not adapter.is_dir():
        raise MissingError(
            f"{run} is not the folder of a finished training run: it has no config.yaml or no model/",
            fix="lengthwise train RECIPE --out RUN, with --resume if it was interrupted",
        )
    recipe = read_recipe(run / "config.yaml")
    if recipe.adapter is None:
        raise UsageError(f"{run} trained the whole model: there is nothing to merge", fix=f"use {adapter}")
    check_whole_weights(read_config(recipe.model), recipe.model)
    # Neither the sampled positions nor the attention of training change the saved weights.
    recipe = recipe.model_copy(update={"shifted_sparse": None, "device": "cpu"})
    whole = recipe.model_copy(update={"quantize": None, "precision": "float32"})
    check_adapter(str(adapter))
    loaded = load_for_training(whole)
    trained = loaded if recipe == whole else load_for_training(recipe)
    _check_base(run, recipe, trained)
    if trained is not loaded:
        expand_into(loaded.model, trained.model)
    del trained
    with quiet_transformers():
        without = _predictions(loaded.model)
        adapted: Any = add_saved_adapter(loaded.model, str(adapter))
        kind, instead = type(adapted.active_peft_config).__name__, f"load it with adapter={adapter}"
        if not hasattr(adapted.base_model, "merge_and_unload"):
            raise UsageError(f"an adapter of {kind} cannot be merged into weights", fix=instead)
        before = _predictions(adapted)
        try:
            merged = adapted.merge_and_unload(safe_merge=True)
        except (RuntimeError, ValueError) as error:
            problem = f"PEFT does not merge this adapter of {kind}: {reason(error)}"
            raise UsageError(problem, fix=instead) from error
        apart = float((_predictions(merged) - before).abs().max() / before.abs().max())
        if not apart < _MERGED:
            raise UsageError(
                f"merged, this adapter of {kind} predicts something else: by {apart:.1g} of the largest logit",
                expected="the predictions of model and adapter"
                + (" (merged into an embedding, it is in the tied head too)" if _is_tied(merged) else ""),
                fix=instead,
            )
        if not _is_tied(merged):
            # Trained apart, they are saved apart.
            merged.config.get_text_config().tie_word_embeddings = merged.config.tie_word_embeddings = False
        # Rounded weights in float32, so that what follows is the rounding of weights and not that of products.
        _round(_round(merged, DTYPES[dtype]), torch.float32)
        lost = float((_predictions(merged) - before).norm() / (before - without).norm().clamp(min=1e-30))
        if dtype != "float32" and lost > _SAID:
            logger.warning(
                "rounded to %s, the weights predict otherwise by %.0f %% of what the adapter changes: "
                "--dtype float32 keeps it",
                *(dtype, 100 * lost),
            )
        _round(merged, DTYPES[dtype])
        save_whole(
            merged,
            loaded.tokenizer,
            out,
            base=recipe.model,
            check=lambda folder: _check_saved(merged, folder),
        )
    return {
        "base": recipe.model,
        "adapter": str(adapter),
        "quantized": recipe.quantize,
        "extension": None if loaded.extension is None else loaded.extension.method,
        "dtype": dtype,
        "lost_to_rounding": f"{lost:.1%} of what the adapter changes",
        "parameters": parameter_counts(merged)[0],
        "written_to": str(out),
    }


def _check_base(run: Path, recipe: Recipe, trained: LoadedModel) -> None:
    """Raise UsageError if the weights under the model's name are no longer those that the adapter was trained on."""
    begun, results = run / "inputs.json", finished_results(run)
    # Each kind of device packs 4 bits in its own way.
    elsewhere = results is not None and results.provenance.get("device") != "cpu"
    if not begun.exists() or (recipe.quantize is not None and elsewhere):
        return
    before = read_inputs(run)
    if before.get("model", {}).get("weights") != trained.fingerprint()["weights"]:
        raise UsageError(
            f"since {run} was begun, the weights of {recipe.model} changed",
            expected="the model that the adapter was trained on",
            fix="restore it, or train again",
        )


def _round(model: Any, dtype: torch.dtype) -> Any:
    """The model's weights in a dtype, in place, but for CLEX's learned frequencies.

    They multiply positions in the thousands, so rounding them turns by radians.
    """
    wide = {name: copy.deepcopy(module.state_dict()) for name, module in clex_modules(model)}
    model.to(dtype)
    for name, module in clex_modules(model):
        module.float().load_state_dict(wide[name])
    return model


@torch.no_grad()
def _predictions(model: Any) -> Tensor:
    """Logits after a few tokens from the whole vocabulary, in rows that fit the model's positions."""
    count = model.get_input_embeddings().weight.shape[0]
    size = min(32, max_positions(unwrap(model)) or 32)
    ids = torch.linspace(0, count - 1, 32 // size * size).long().view(-1, size)
    # Some models (xLSTM) fail with their own cache.
    return model.eval()(input_ids=ids, **accepted(unwrap(model), use_cache=False)).logits.float()


def _is_tied(model: Any) -> bool:
    """Whether one tensor is both embedding and head."""
    return getattr(model.get_output_embeddings(), "weight", None) is model.get_input_embeddings().weight


def _check_saved(model: nn.Module, folder: Path) -> None:
    """Raise LengthwiseError unless a saved model loads with the weights of this one, to the bit."""
    saved = load_weights(str(folder), device="cpu")[0].state_dict()
    own = model.state_dict()
    if lost := [name for name in own if name not in saved or not torch.equal(saved[name], own[name])]:
        raise LengthwiseError(
            f"the merged model was saved with other weights in {len(lost)} tensors, as {lost[0]}"
        )


@torch.no_grad()
def expand_into(target: nn.Module, quantized: nn.Module) -> None:
    """Copy the weights of `quantized` into `target`, the same model, with 4-bit weights dequantised to float32.

    A model that computes in bfloat16 rounds them again in every product.
    """
    from bitsandbytes.functional import dequantize_4bit

    for name, parameter in target.named_parameters():
        owner, _, last = name.rpartition(".")
        value: Any = quantized.get_parameter(name)
        if last == "weight" and is_4bit(quantized.get_submodule(owner)):
            state = copy.copy(value.quant_state)
            state.dtype = torch.float32
            value = dequantize_4bit(value.data, state)
        parameter.copy_(value)
