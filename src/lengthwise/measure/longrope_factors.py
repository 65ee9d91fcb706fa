"""LongRoPE's factors for one model: the search of `positions`, with the model's loss on long windows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lengthwise.config import to_yaml
from lengthwise.errors import UsageError, require
from lengthwise.files import atomic_write_text
from lengthwise.models import load, naming_bad_logits, target_losses
from lengthwise.models.extension import Extension, plan_extension
from lengthwise.models.extension.rotary import check_frequencies, find_rotary, frequency_names
from lengthwise.models.hidden import unwrap
from lengthwise.positions.rope.longrope_evolution import (
    Factors,
    SearchSettings,
    search_factors,
    start_factors,
)
from lengthwise.progress import progress
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.text import load_corpus, resolve_bos, sample_windows, tokenize, view

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.settings import Dtype
    from lengthwise.text import Bos, TokenDocument


def search_longrope(
    model: LoadedModel,
    documents: Sequence[TokenDocument],
    *,
    factor: float,
    original_length: int | None = None,
    windows: int = 5,
    settings: SearchSettings = SearchSettings(),  # noqa: B008
    bos: Bos = "auto",
    seed: int = 0,
    log: SampleLog | None = None,
) -> dict[str, Any]:
    """Search the `long_factor` of LongRoPE with which a model has the least loss at the extended length.

    The loss is the mean over all tokens of `windows` windows of s * L0 tokens, by the model as it is. The
    model is left as it was.

    Args:
        model: loaded, not extended.
        documents: the text in this model's tokens.
        factor: s.
        original_length: L0; None is what the configuration says.
        windows: windows of text; fewer where the text has fewer.
        settings: how long to search.
        bos: as in the measurements.
        seed: of the windows and the search.
        log: losses of candidates, read and appended to, so a search can be resumed; None keeps them in memory.

    Returns:
        `extend` (the section of a recipe), `loss` (nats a token) and `start_losses` (those of other methods'
        frequencies, with LongRoPE's attention factor), `windows`, `length`. Plain values.

    Raises:
        UsageError: the model cannot be extended, the text has no window of s * L0 tokens, a log of another
            search.
        LengthwiseError: logits that are not finite.
    """
    _check_numbers(windows, seed)
    plan = plan_extension(model.config, "pi", factor=factor, original_length=original_length, name=model.name)
    if factor == 1:
        raise UsageError("factor = 1 leaves nothing to search", expected="above 1")
    rotary = [module for _, _, module in find_rotary(unwrap(model.model))]
    for module in rotary:
        check_frequencies(module, plan, extended=False)
    length = plan.extended_length
    cut = sample_windows(documents, length + 1, count=windows, seed=seed, allow_fewer=True)
    bos_id = resolve_bos(model.tokenizer, bos)
    inputs = [torch.from_numpy(view(window.ids, 0, length, bos_id))[None] for window in cut]
    labels = [torch.from_numpy(view(window.ids, 1, length, None)) for window in cut]
    samples = SampleLog() if log is None else log
    _check_same_search(
        samples, {"factor": factor, "L0": plan.original_length, "seed": seed, "model": model.name}
    )
    inv_freq, scaling = frequency_names(plan.layer_type)
    before = [(module, getattr(module, inv_freq).clone(), getattr(module, scaling)) for module in rotary]
    bar = progress(range(settings.evaluations), what="longrope-search", total=settings.evaluations)

    def loss(factors: Factors) -> float:
        key = json.dumps(factors)
        if key not in samples:
            candidate = _longrope(plan, factors)
            for module in rotary:
                frequencies, candidate_scaling = candidate.inverse_frequencies()
                getattr(module, inv_freq).copy_(frequencies)
                setattr(module, scaling, candidate_scaling)
            total = sum(
                target_losses(model, model.hidden_states(ids)[0], after).sum().item()
                for ids, after in zip(inputs, labels, strict=True)
            )
            samples.append(key, {"loss": total / (length * len(inputs))})
        bar.update()
        return samples[key]["loss"]

    try:
        with naming_bad_logits(model, "a window of the search"):
            found = search_factors(
                loss,
                start_factors(plan.theta, plan.head_dim, plan.original_length, factor),
                largest=1.25 * factor,
                settings=settings,
                seed=seed,
            )
    finally:
        bar.close()
        for module, frequencies, own_scaling in before:
            getattr(module, inv_freq).copy_(frequencies)
            setattr(module, scaling, own_scaling)
    return {
        "extend": {
            "method": "longrope",
            "factor": factor,
            "original_length": plan.original_length,
            "options": {"long_factor": list(found.factors)},
        },
        "loss": found.loss,
        "start_losses": found.starts,
        "windows": len(inputs),
        "length": length,
    }


def run_longrope_search(
    model: str,
    out: Path,
    *,
    text: str,
    split: str,
    device: str = "auto",
    dtype: Dtype = "auto",
    **arguments: Any,
) -> dict[str, Any]:
    """`search_longrope` by names; `out` gets `losses.jsonl` (the log) and `extend.yaml` (the result).

    A search whose folder has a log continues it, also with more candidates.

    Raises:
        UsageError, MissingError, LengthwiseError: as `load`, `load_corpus`, `search_longrope` and `RunFolder`.
    """
    _check_numbers(arguments.get("windows", 1), arguments.get("seed", 0))
    kind = "longrope-search"
    search = {name: value for name, value in arguments.items() if name != "settings"}
    config = {"model": model, "dtype": dtype, "text": text, "split": split, **search}
    with RunFolder(
        out, kind=kind, config=config, writes=("losses.jsonl", "extend.yaml"), resume=True
    ) as folder:
        corpus = load_corpus(text, split=split)  # type: ignore[arg-type]
        loaded = load(model, device=device, dtype=dtype)
        documents = tokenize(corpus, loaded.tokenizer)
        folder.check_inputs({"model": loaded.fingerprint(), "text": {"corpus": documents.corpus_fingerprint}})
        found = search_longrope(loaded, documents, log=SampleLog(folder.path / "losses.jsonl"), **arguments)
        written = folder.path / "extend.yaml"
        atomic_write_text(written, to_yaml({"extend": found["extend"]}))
    return found | {"written_to": str(written)}


def _check_numbers(windows: int, seed: int) -> None:
    require(windows >= 1, f"windows is {windows} (--limit)", "at least 1")
    require(seed >= 0, f"seed is {seed}", "at least 0")


def _longrope(plan: Extension, factors: Factors) -> Extension:
    return Extension(**{**asdict(plan), "method": "longrope", "options": {"long_factor": list(factors)}})


def _check_same_search(log: SampleLog, settings: dict[str, Any]) -> None:
    if "settings" not in log:
        log.append("settings", settings)
    elif log["settings"] != settings:
        raise UsageError(
            f"the log is of another search: {log['settings']}, not {settings}", fix="give another folder"
        )
