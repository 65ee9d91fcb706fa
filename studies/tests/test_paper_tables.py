"""The paper's tables: claims and arms as data, their plans without network, two steps of a large scale in small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation.longbench_e import DATA_SETS
from lengthwise.results import read_results
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise_studies.contrasts import check_contrasts
from lengthwise_studies.costs import study_costs
from lengthwise_studies.paper.all_tables import ALL, TABLES
from lengthwise_studies.paper.methods import CONTROLLED, PLAIN
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import LAPTOP, PAPER, PARTS, SCORED, SIZES, Size
from lengthwise_studies.paper.statements import Setting, claim
from lengthwise_studies.skeleton import Study, chosen_scale
from lengthwise_studies.store import arm_folder
from lengthwise_studies.study_table import study_named
from tests.tiny_folders import texts_in


def test_more_seeds_start_from_pretrainings_of_their_own():
    more = chosen_scale(SIZES, "laptop", seeds=5)
    assert more.seeds == 5
    assert "5 pretrainings" in " ".join(more.notes)


@pytest.mark.parametrize("name", TABLES)
def test_every_claim_compares_arms_that_some_setting_has(name):
    table = TABLES[name]
    in_study = study_named(table.in_study or name)
    assert any(part.heading == f"Where it comes from: {table.label}" for part in in_study.parts)
    tests = [claim.test for claim in table.claims]
    # Kept results have nothing but losses of arms after fewer steps.
    assert all(one.steps is None or one.quantity.metric == "loss" for one in tests)
    for scale in {"laptop", "gpu", "paper"} & table.sizes.keys():
        experiment, _ = table.experiment(table.sizes[scale])
        compared = {(arm.name, arm.against) for arm in experiment.arms}
        compared |= {(one.arm, one.against) for one in experiment.contrasts}
        missing = {(one.arm, one.against) for one in tests} - compared
        # At the scale `gpu` both corpora are one, so the second setting of tables 2 and 9 is not run; it has no model
        # of several pretrainings either.
        assert all(scale != "laptop" and arm.startswith(("PG19", "CLEX, ")) for arm, _ in missing)
        assert scale != "paper" or not any(arm.startswith("PG19") for arm, _ in missing)


@pytest.mark.parametrize("name", TABLES)
def test_every_claim_is_measured_alike_on_both_sides_before_anything_is_trained(name):
    """With the questions of LongBench-E too, at every scale."""
    table = TABLES[name]
    for size in table.sizes.values():
        for one in (size, replace(size, data="folder")):
            experiment, scale = table.experiment(one)
            check_contrasts(experiment.contrasts, experiment.arms, scale)


def test_a_claim_about_other_tokens_is_refused_before_anything_is_trained(tmp_path):
    """CREAM trains on windows of T, EABF on 2T: their misalignments are of other tokens."""
    other = claim("Table 5", "says", PARTS[0], "lower", "EABF: SCE 0.1", "CREAM: plain CE")
    table = replace(TABLES["cream"], claims=(other,))
    with pytest.raises(UsageError, match="misalignment"):
        table.run(tmp_path / "run", LAPTOP)
    assert not (tmp_path / "run").exists()


def test_the_papers_numbers_of_table_4():
    claims = {claim.says: claim for claim in TABLES["table4"].claims}
    claim = claims["alpha 0.1 lowers the perplexity after 200 steps"]
    assert claim.paper == "perplexity 5.88 against 6.12 (-0.040)"
    assert claims["alpha 0.1 raises LongBench-E"].paper == "LongBench-E 26.6 against 24.7 (+0.019)"
    assert len([claim for claim in claims.values() if claim.paper.startswith("perplexity")]) == 12


def test_the_paper_scale_has_the_papers_values():
    experiment, scale = TABLES["table4"].experiment(PAPER)
    recipe = experiment.recipe_of(scale, experiment.arms[2], 0)
    assert (recipe.length, recipe.batch.size, recipe.steps) == (4096, 64, 200)
    assert recipe.save_at == (50, 100)
    assert (recipe.extend.method, recipe.extend.factor) == ("clex", 16)  # type: ignore[union-attr]
    assert recipe.objective.alpha == 0.1
    assert PAPER.measures(4096)["perplexity"]["lengths"] == [1024, 2048, 4096, 8192, 16384]


def test_a_size_is_read_back_from_a_run():
    for size in SIZES.values():
        assert Size.of(size.to_dict()) == replace(size, start=None)


def test_the_paper_scale_is_planned_without_network(monkeypatch):
    monkeypatch.setattr("lengthwise_studies.costs.read_config", None)
    [cost] = study_costs(TABLES["table6"].study, "paper")
    # Four trained arms of three seeds: 200 steps of 64 pairs of windows of 4096 tokens.
    assert (cost.trainings, cost.measured) == (12, 13)
    assert cost.trained_tokens == 3 * 4 * 2 * 200 * 64 * 4096
    # Six operations a weight and token, two more for the recomputed forward pass, and attention.
    weights = 8 * 6_738_415_616 * cost.trained_tokens
    assert weights < cost.operations < 2 * weights


def test_training_costs_products_state_and_activations():
    experiment, scale = TABLES["table6"].experiment(PAPER)
    scale = replace(scale, measures={}, marks=(), seeds=1)
    # Cross entropy on one view, without a divergence: the other view is not read.
    one_view = ("objective.ce_on=short", "objective.alpha=0")
    arm = experiment.arms[1]
    arm = replace(arm, measures={}, changes=(*(arm.changes or ()), *one_view))
    one = replace(experiment, arms=(arm,), reference=None, contrasts=())
    parts = (one.part(lambda results, folder: [], {"default": scale}),)
    [cost] = study_costs(Study(title="training alone", parts=parts), "default")
    width, inner, layers, length, weights = 4096, 11008, 32, 4096, 6_738_415_616
    assert cost.trained_tokens == 200 * 64 * length
    # A query meets length / 2 keys and as many values: 2 operations each, four times, as for a weight.
    assert cost.operations == pytest.approx(
        8 * (weights + layers * width * length) * cost.trained_tokens, rel=1e-3
    )
    # Weight, gradient and two moments in float32, autocast's copy; inputs of all blocks, and the inside of one.
    kept = length * (layers * 4 * width + 4 * (9 * width + 2.4 * inner))
    assert cost.memory_bytes == pytest.approx(18 * weights + kept, abs=1e9)


def _tiny(size: Size, folder: Path) -> Size:
    texts_in(folder / "text", 6, 1500)
    return replace(
        size,
        model=str(save_tiny_model(folder / "model", max_position_embeddings=32)),
        trained=32,
        window=32,
        factor=4,
        steps=2,
        batch=2,
        seeds=1,
        corpora=dict.fromkeys(size.corpora, str(folder / "text")),
        lengths=(1, 2),
        distances=(1,),
        samples=(2, 2, 2),
        question_lengths=(),
        scored=False,
        quantized=False,
        changes=(*size.changes, "device=cpu"),
    )


def _with_arms(table: PaperTable, which: slice) -> tuple[Setting, ...]:
    """The settings with some of the standard arms and no others."""
    return tuple(replace(one, arms=CONTROLLED[which]) for one in table.settings)


@pytest.mark.slow
def test_claims_on_longbench_have_numbers_with_a_folder_of_its_files(tmp_path):
    """Two steps, on made-up rows of the same shape."""
    pytest.importorskip("lm_eval")
    on_scores = [one for table in TABLES.values() for one in table.claims if one.test.quantity == SCORED]
    # All but our own.
    papers = [name for name, table in TABLES.items() if not table.in_study and name != "when"]
    assert ("data" in ALL.takes, len(ALL.parts), len(on_scores)) == (True, len(papers), 23)
    for name in DATA_SETS:
        row = {"input": "Who?", "context": tiny_text(20), "answers": ["Paragraph 2"], "length": 10}
        if name == "passage_count":
            row["answers"] = ["2"]
        (tmp_path / f"{name}_e.jsonl").write_text(json.dumps({**row, "all_classes": ["Paragraph 2"]}))
    table = TABLES["table5"]
    table = replace(table, settings=_with_arms(table, slice(1, 3)))
    results = table.run(tmp_path / "run", replace(_tiny(LAPTOP, tmp_path), start=None, data=str(tmp_path)))
    [of_scores] = [one for one in table.judged(results) if one.claim.test.quantity == SCORED]
    assert of_scores.found.why != "not measured at this scale"
    assert results.select(task=SCORED.task, metric=SCORED.metric, reference=PLAIN)


@pytest.mark.slow
def test_two_steps_of_the_paper_scale_with_a_tiny_llama(tmp_path):
    table, out, size = TABLES["table6"], tmp_path / "run", _tiny(PAPER, tmp_path)
    results = table.run(out, size)
    arms = {row.arm for row in results.rows}
    assert arms == {"untrained", PLAIN, "SCE 0.1", "entropy 0.1", "Jeffreys 10"}
    assert {row.reference for row in results.rows} == {None, PLAIN}
    assert {one.verdict for one in table.judged(results)} == {"not run"}
    assert table.run(out, size, resume=True).rows == results.rows
    assert table.sections(results, out)[0].tables


@pytest.mark.slow
def test_equal_time_and_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "lengthwise_studies.experiments.measure_step_times",
        lambda recipes, kept: {name: 1.0 if name == "plain CE" else 2.0 for name in recipes},
    )
    settings = _with_arms(TABLES["table6"], slice(1, 3))
    table = replace(TABLES["table6"], settings=settings, claims=(), follows=True, equal_time=True)
    results = table.run(tmp_path / "run", replace(_tiny(LAPTOP, tmp_path), steps=4, start=None))
    steps = {
        label: read_results(arm_folder(results, label) / "train" / "results.json").config["steps"]
        for label in results.provenance["arms"]
    }
    assert steps == {f"{PLAIN}, seed 0": 4, "SCE 0.1, seed 0": 2}
    marked = {row.arm for row in results.rows if row.reference is None and row.task == "perplexity"}
    assert marked == {
        f"{arm}{after}" for arm in (PLAIN, "SCE 0.1") for after in ("", " after 1 steps", " after 2 steps")
    }
    assert {row.reference for row in results.rows} >= {f"{PLAIN} after 2 steps"}


@pytest.mark.slow
def test_arms_of_two_settings_are_compared_on_the_same_tokens(tmp_path):
    table = TABLES["table11"]
    claims = [claim for claim in table.claims if claim.test.quantity.metric == "loss"][:2]
    within, between = (claim.test for claim in claims)
    table = replace(table, settings=_with_arms(table, slice(3))[:2], claims=tuple(claims))
    size = replace(_tiny(LAPTOP, tmp_path), seeds=2, start=None)
    rows = table.run(tmp_path / "run", size).rows
    arm, against = between.arm, between.against
    values = {
        (row.arm, row.reference, row.seed): row.value
        for row in rows
        if between.quantity.is_in(row, size.trained)
    }
    for seed in range(2):
        assert values[arm, None, seed] != values[against, None, seed]
        expected = values[arm, None, seed] - values[against, None, seed]
        assert values[arm, against, seed] == pytest.approx(expected, abs=1e-6)
    # The claim within a setting is compared there, once.
    pairs = [(row.arm, row.reference) for row in rows if within.quantity.is_in(row, size.trained)]
    assert pairs.count((within.arm, within.against)) == 2
