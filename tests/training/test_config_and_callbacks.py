"""What users of TRL and PEFT expect: a config that is saved and parsed, a callback that measures, the hub."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trainers import SETTINGS
from transformers import EarlyStoppingCallback, HfArgumentParser, Trainer, TrainingArguments

from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.measure import MEASUREMENTS, Limit, Misalignment, Perplexity, run
from lengthwise.results import Row
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import TokenDocument, tokenize
from lengthwise.training import (
    AlignmentArguments,
    AlignmentConfig,
    AlignmentTrainer,
    MeasureCallback,
    PairCollator,
    View,
    WindowDataset,
)
from lengthwise.training.measure_callback import logged_name
from lengthwise.training.sections import lower_is_better
from lengthwise.training.trainer import logged_parts
from tests.small_measurements import SMALL, TEXTS

TERMS = {"alpha": 0.3, "divergence": "jeffreys", "detach": "short", "ce_on": "long"}


def trainer(documents: Sequence[TokenDocument], args: TrainingArguments, **others: Any) -> AlignmentTrainer:
    return AlignmentTrainer(
        tiny_llama(num_hidden_layers=1).double(),
        args,
        train_dataset=WindowDataset(documents, View(16, offsets=(1, 7)), batch_size=4, steps=4),
        processing_class=tiny_tokenizer(),
        **({"data_collator": PairCollator(View(16))} | others),
    )


def losses(trained: AlignmentTrainer) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "grad_norm" in entry]


def test_a_config_is_parsed_saved_and_trained_with(documents: Sequence[TokenDocument], tmp_path: Path):
    words = [f"--{name}={value}" for name, value in TERMS.items()]
    (parsed,) = HfArgumentParser(AlignmentConfig).parse_args_into_dataclasses(  # type: ignore[arg-type]
        ["--output_dir", str(tmp_path), "--use_cpu", *words]
    )
    assert parsed.objective() == Objective(**TERMS)
    (alone,) = HfArgumentParser(AlignmentArguments).parse_args_into_dataclasses(words)  # type: ignore[arg-type]
    assert alone.objective() == parsed.objective()
    assert {name: parsed.to_dict()[name] for name in TERMS} == TERMS

    config = AlignmentConfig(str(tmp_path / "a"), **SETTINGS, **TERMS, save_steps=4)
    ours = trainer(documents, config)
    ours.train()
    saved = torch.load(tmp_path / "a" / "checkpoint-4" / "training_args.bin", weights_only=False)
    assert saved.objective() == ours.objective == Objective(**TERMS)

    plain = TrainingArguments(str(tmp_path / "b"), **SETTINGS, save_strategy="no")
    given = trainer(documents, plain, objective=Objective(**TERMS))
    given.train()
    assert losses(given) == losses(ours)


def test_a_trainer_leaves_what_it_is_given_as_it_was(documents: Sequence[TokenDocument], tmp_path: Path):
    view = View(16, offsets=(1, 7), min_context=0)
    collator = PairCollator(view)
    before = dict(vars(collator)), dict(vars(view))
    for least, given in ((0, collator), (8, PairCollator(View(16, offsets=(1, 7))))):
        ours = AlignmentTrainer(
            tiny_llama(num_hidden_layers=1),
            AlignmentConfig(str(tmp_path), **SETTINGS, save_strategy="no"),
            train_dataset=WindowDataset(documents, given.view, batch_size=4, steps=4),
            data_collator=given,
        )
        ours.train()
        first = ours.state.log_history[0]
        assert first["paired_positions"] == 4 * (16 - first["offset"] - least)
    assert (vars(collator), vars(view)) == before


def test_the_objective_is_given_once_and_checked(documents: Sequence[TokenDocument], tmp_path: Path):
    config = AlignmentConfig(str(tmp_path), **SETTINGS)
    with pytest.raises(UsageError, match="AlignmentConfig"):
        trainer(documents, config, objective=Objective(alpha=0.3))
    with pytest.raises(UsageError, match="objective"):
        trainer(documents, TrainingArguments(str(tmp_path), **SETTINGS))
    with pytest.raises(UsageError, match="-1"):
        AlignmentConfig(str(tmp_path), alpha=-1, **SETTINGS)


def test_a_callback_measures_in_the_precision_of_the_trainer(
    documents: Sequence[TokenDocument], tmp_path: Path
):
    """Autocast, which the notes name."""
    text, spec = [tiny_text(300, seed=seed) for seed in range(2)], Perplexity(lengths=(32,), windows=2)
    ours = trainer(documents, AlignmentConfig(str(tmp_path), **SETTINGS | {"bf16": True}, save_strategy="no"))
    last = ours.args.max_steps
    ours.add_callback(MeasureCallback(ours, spec, text, every=last))
    ours.train()
    [logged] = [entry for entry in ours.state.log_history if "eval_perplexity/loss@32" in entry]
    ours.model.eval()
    with ours.accelerator.autocast():
        again = run(spec, (ours.model, ours.processing_class), text)
    value = next(row.value for row in again.rows if row.metric == "loss" and row.is_headline)
    assert logged["eval_perplexity/loss@32"] == value
    assert any("under autocast, in bfloat16" in note for note in again.notes)


def test_a_callback_measures_and_leaves_training_alone(documents: Sequence[TokenDocument], tmp_path: Path):
    text = [tiny_text(300, seed=seed) for seed in range(2)]

    def trained(every: int | None) -> AlignmentTrainer:
        config = AlignmentConfig(str(tmp_path), **SETTINGS, save_strategy="no", alpha=0.3)
        ours = trainer(documents, config)
        if every is not None:
            spec = Misalignment(lengths=(32,), windows=2)
            ours.add_callback(MeasureCallback(ours, spec, text, every=every))
        ours.train()
        return ours

    plain, measured = trained(None), trained(2)
    assert losses(measured) == losses(plain)
    assert measured.model.training
    rows = [entry for entry in measured.state.log_history if "eval_misalignment/jeffreys@32" in entry]
    assert [entry["step"] for entry in rows] == [2, 4]
    first, last = (entry["eval_misalignment/jeffreys@32"] for entry in rows)
    assert 0 < first != last > 0
    assert rows[0]["eval_misalignment/sce@32"] == pytest.approx(
        rows[0]["eval_misalignment/entropy@32"] + rows[0]["eval_misalignment/jeffreys@32"]
    )
    with pytest.raises(UsageError, match="0"):
        MeasureCallback(measured, Misalignment(), text, every=0)


EVALUATED: dict[str, Any] = {"save_strategy": "no", "eval_strategy": "steps", "eval_steps": 1}


BEST = "eval_perplexity/perplexity@32"


def test_a_measured_number_stops_training_and_keeps_the_best(documents, tmp_path):
    """Of several data sets with the first; of one in test_held_out.py."""
    held_out: Any = WindowDataset(documents, View(16, offsets=(3, 3)), batch_size=4, steps=1)
    changes = {"learning_rate": 0.3, "max_steps": 12, "alpha": 0.3, "metric_for_best_model": BEST}
    keep = {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True}
    config = AlignmentConfig(
        str(tmp_path), **(SETTINGS | EVALUATED | changes | keep), greater_is_better=False
    )
    ours = trainer(
        documents,
        config,
        eval_dataset={"a": held_out, "b": held_out},
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    measurement = Perplexity(lengths=(32,), windows=2)
    # Behind the callback that reads the number.
    ours.add_callback(MeasureCallback(ours, measurement, TEXTS))
    ours.train()
    found = {entry["step"]: entry[BEST] for entry in ours.state.log_history if BEST in entry}
    best, worse = min(found, key=lambda step: found[step]), 0
    for step, value in found.items():
        worse = 0 if value < min([*(found[at] for at in found if at < step), float("inf")]) else worse + 1
        assert (worse >= 2) == (step == ours.state.global_step), step
    assert ours.state.global_step < 12
    assert ours.state.best_metric == found[best]
    assert ours.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best}")
    [row] = [
        each
        for each in run(measurement, (ours.model.eval(), tiny_tokenizer()), TEXTS).rows
        if each.metric == "perplexity" and each.is_headline
    ]
    assert row.value == pytest.approx(found[best], rel=1e-9)


def test_the_worse_number_is_never_taken_for_the_better(documents: Sequence[TokenDocument], tmp_path: Path):
    """transformers takes all that is not named loss as better when greater."""
    for name in ("jeffreys", "eval_cross_entropy", BEST, "eval_misalignment/js@16"):
        config = AlignmentConfig(str(tmp_path), **SETTINGS, metric_for_best_model=name)
        with pytest.raises(UsageError, match="greater_is_better"):
            trainer(documents, config)
    held_out = WindowDataset(documents, View(16, offsets=(3, 3)), batch_size=4, steps=1)
    for name in ("eval_a_jeffreys", "a_b_cross_entropy"):
        config = AlignmentConfig(str(tmp_path), **(SETTINGS | EVALUATED), metric_for_best_model=name)
        with pytest.raises(UsageError, match="greater_is_better"):
            trainer(documents, config, eval_dataset={"a": held_out, "a_b": held_out})
    # A plain Trainer meets the callback alone.
    plain = Trainer(
        tiny_llama(num_hidden_layers=1),
        TrainingArguments(str(tmp_path), **SETTINGS, metric_for_best_model=BEST),
        processing_class=tiny_tokenizer(),
    )
    with pytest.raises(UsageError, match="greater_is_better"):
        MeasureCallback(plain, Perplexity(lengths=(32,)), TEXTS)
    known = {metric for entry in MEASUREMENTS.values() for metric in entry.measurement.about.metrics}
    lower = {metric for metric in known if lower_is_better(f"eval_task/{metric}@512")}
    assert {"loss", "perplexity", "jeffreys", "excess"} <= lower
    assert not lower & {"used_up_to", "sound_up_to", "benefit", "top1_agreement", "equal_up_to"}
    assert all(
        lower_is_better(name) for name in ("loss", *logged_parts(Objective(alpha=1.0))) if name != "entropy"
    )


@pytest.mark.parametrize("kind", MEASUREMENTS)
def test_a_callback_logs_every_headline_number_of_every_measurement(kind, documents, tmp_path):
    settings = dict(SMALL[kind])
    if kind == "compare":
        settings["side_b"] = {"model": str(save_tiny_model(tmp_path / "other", seed=1))}
    measurement = MEASUREMENTS[kind].measurement(**settings)
    config = AlignmentConfig(str(tmp_path), **(SETTINGS | {"max_steps": 1}), save_strategy="no", alpha=0.3)
    ours = trainer(documents, config)
    ours.add_callback(MeasureCallback(ours, measurement, TEXTS, every=1))
    ours.train()
    found = run(measurement, (ours.model.eval(), tiny_tokenizer()), TEXTS)
    expected = [row for row in found.rows if row.is_headline and row.value is not None]
    (logged,) = (
        entry
        for entry in ours.state.log_history
        if any(f"eval_{expected[0].task}/" in name for name in entry)
    )
    of_rows = {name: value for name, value in logged.items() if "/" in name}
    # One name for each number: none overwrites another.
    assert len(of_rows) == len(expected) > 0
    assert of_rows == {logged_name(row): pytest.approx(row.value, rel=1e-6) for row in expected}
    assert all("None" not in name for name in of_rows)


def test_the_docs_name_numbers_as_they_are_logged():
    """A name that no evaluation has stops a training at its first evaluation."""
    rows: list[Row] = []
    for kind in ("limit", "ppl", "measure"):
        measurement = MEASUREMENTS[kind].measurement(**SMALL[kind])
        rows += run(measurement, (tiny_llama(), tiny_tokenizer()), TEXTS).rows
    logged = {logged_name(row) for row in rows if row.is_headline}
    docs = Path(__file__).parents[2] / "docs"
    pages = [(docs / page).read_text() for page in ("definitions/objective.md", "reference/recipe.md")]
    named = re.findall(r"eval_\w+/\w+@[\w=,]+", "".join([*pages, str(MeasureCallback.__doc__)]))
    assert len(named) >= 5
    assert {re.sub(r"\d+", "N", name) for name in named} <= {re.sub(r"\d+", "N", name) for name in logged}


def test_what_a_callback_cannot_measure_is_refused_before_training(documents, tmp_path):
    ours = trainer(documents, AlignmentConfig(str(tmp_path), **SETTINGS))
    with pytest.raises(UsageError, match="two sides"):
        MeasureCallback(ours, MEASUREMENTS["compare"].measurement(), TEXTS)
    with pytest.raises(UsageError, match="a text is given"):
        tasks = MEASUREMENTS["eval"].measurement(tasks=("longbench_qasper_e",), max_length=500)
        MeasureCallback(ours, tasks, TEXTS)
    with pytest.raises(UsageError, match="characters"):
        tokens = tokenize(TEXTS, tiny_tokenizer())
        MeasureCallback(ours, MEASUREMENTS["longppl"].measurement(), tokens)
    # What only the model and the text tell: positions, and how long the documents are.
    for measurement, words in (
        (Limit(max_length=64, reference=32), "too short to look for a limit"),
        (Perplexity(lengths=(100_000,)), "a window needs"),
    ):
        with pytest.raises(UsageError, match=words):
            MeasureCallback(ours, measurement, TEXTS)


def test_a_callback_that_no_evaluation_calls_says_so(documents, tmp_path, caplog):
    for evaluated in (False, True):
        changes = EVALUATED if evaluated else {"save_strategy": "no"}
        held_out = WindowDataset(documents, View(16, offsets=(3, 3)), batch_size=4, steps=1)
        config = AlignmentConfig(str(tmp_path), **(SETTINGS | {"max_steps": 1} | changes))
        ours = trainer(documents, config, eval_dataset=held_out)
        ours.add_callback(MeasureCallback(ours, Perplexity(lengths=(32,), windows=2), TEXTS))
        caplog.clear()
        ours.train()
        assert ("nothing is measured" in caplog.text) is not evaluated
