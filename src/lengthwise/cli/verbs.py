"""The verbs: each takes its options, calls one function of the library, and prints what it returns."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from lengthwise.cli.options import AsJson, Assignments, DryRun, Model, Output
from lengthwise.cli.output import needed, print_plan, print_report, print_results, print_table, show
from lengthwise.errors import MissingError, UsageError, require_known
from lengthwise.files import atomic_write_text, file_to_write, named_path
from lengthwise.settings import Dtype

_BEGINS = {"csv": "model,", "latex": r"\begin{table}", "markdown": "**"}
"""How tables of runs begin: no other file is replaced by one."""


def extend(
    model: Model,
    *,
    method: str,
    factor: float,
    original_length: int | None = None,
    assignments: Assignments = (),
    out: str | None = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Extend the context of a model with rotary positions.

    No weight changes: the model can be measured at once, or trained further. Its card says what was done.

    Args:
        method: A rope method of `lengthwise ls methods`.
        factor: How many times longer the context becomes.
        original_length: Tokens of context that the model was trained for; default is what its configuration says.
        assignments: An option of the method, as in beta_fast=16; repeat it for several.
        out: Model folder to write: exactly this one.

    Examples:
        lengthwise extend smollm2-135m --method yarn --factor 2 --out models/yarn2
        lengthwise extend ./my-model --method ntk --factor 4 --set alpha=5 --out models/ntk4
        lengthwise extend ./my-model --method llama3 --factor 8 --original-length 8192 --dry-run
    """
    from lengthwise.checkpoints.saving import plan_extended, save_extended
    from lengthwise.yaml_text import each_once, override

    how = {
        "factor": factor,
        "original_length": original_length,
        "options": override({}, each_once(assignments)),
    }
    if dry_run:
        print_plan(plan_extended(model, method, **how), as_json=as_json)
        return
    target = needed(out, "extending", "models/NAME")
    print_plan(save_extended(model, method, target, **how), as_json=as_json, caption="what was done")


def train(
    recipe: str,
    *,
    assignments: Assignments = (),
    devices: int | None = None,
    output: Output,
) -> None:
    """Train a model with the alignment objective.

    Minimises cross entropy on two views of a text plus alpha times their divergence. The model or adapter is
    written to OUT/model, one line of metrics per step to OUT/metrics.jsonl.

    Args:
        recipe: A YAML file, or a name from `lengthwise ls recipes`.
        assignments: Change a setting of the recipe, as in objective.alpha=0.1; repeat it for several.
        devices: With --dry-run: plan for so many devices (default: torchrun's).

    Examples:
        lengthwise train smollm2-lora --out runs/lora
        lengthwise train my-recipe.yaml --set objective.alpha=0.1 --dry-run
        lengthwise train clex --dry-run --devices 8
        lengthwise train runs/lora/config.yaml --out runs/again
        lengthwise train smollm2-lora --out runs/lora --resume
        torchrun --nproc-per-node 2 -m lengthwise train my-recipe.yaml --out runs/two
    """
    from lengthwise.training import plan, read_recipe
    from lengthwise.yaml_text import each_once

    resolved = read_recipe(recipe, each_once(assignments))
    if output.dry_run:
        planned = plan(resolved, devices=devices)
        if not (output.as_json or output.verbose):
            planned["settings"] = resolved.to_dict(defaults=False)
        print_plan(planned, as_json=output.as_json)
        return
    if devices is not None:
        raise UsageError("--devices requires --dry-run")
    needed(output.out, "training", "runs/NAME")
    # The Trainer takes seconds to import, which neither a dry run nor a mistake needs.
    from lengthwise.training import train as run_recipe

    show(partial(run_recipe, resolved), output)


def merge(run: str, *, out: str, dtype: Dtype = "float32", as_json: AsJson = False) -> None:
    """Merge a run's adapter into its base model and save that.

    A base model in 4 bits is dequantised: the adapter was trained on those weights.

    Args:
        run: The folder of a finished `lengthwise train`.
        out: Model folder to write: exactly this one.
        dtype: float32 is exact; bfloat16 or float16 halve the size.

    Examples:
        lengthwise merge runs/lora --out models/merged
        lengthwise merge runs/longqlora --dtype bfloat16 --out models/longqlora
    """
    from lengthwise.training.merging import merge_run

    print_plan(merge_run(run, out, dtype=dtype), as_json=as_json, caption="what was done")


def import_(source: str, *, out: str, overwrite: bool = False, as_json: AsJson = False) -> None:
    """Make a run folder of what lm-eval wrote, for report and difference.

    lm-eval runs with any of its backends (vLLM, a server, transformers) and --log_samples. Scores get intervals over
    their samples.

    Args:
        source: The folder with results_*.json and samples_*.jsonl, below lm-eval's --output_path.
        out: Run folder to write.
        overwrite: Replace the earlier run in --out.

    Examples:
        lm_eval run --model vllm --model_args pretrained=MODEL --tasks ruler --log_samples --output_path out
        lengthwise import out/MODEL --out runs/ruler
        lengthwise difference runs/ruler runs/ruler-quantized
    """
    from lengthwise.evaluation.lm_eval_output import import_lm_eval

    print_results(import_lm_eval(source, out, overwrite=overwrite), Output(out=out, as_json=as_json))


def report(
    runs: tuple[str, ...],
    *,
    out: str | None = None,
    format: Literal["html", "csv", "latex", "markdown", "svg"] = "html",
) -> None:
    """Make one self-contained HTML page of one or several runs.

    It has tables, figures and settings and needs no network. Several runs share tables and figures. --format
    gives the tables or the figures alone.

    Args:
        runs: Run folders (what --out named). NAME=RUN names a run in tables and figures.
        out: File or folder for the page; folder for figures (svg). Default for one run: report.html in it.
        format: A page; tables on standard output, of which csv is one table of all numbers; or the figures alone.

    Examples:
        lengthwise report runs/before
        lengthwise report runs/before runs/after runs/lora --out compare.html
        lengthwise report runs/before runs/after --format latex > tables.tex
        lengthwise report plain=runs/limit yarn=runs/limit-yarn --format svg --out figures
    """
    from lengthwise.versions import need

    need("matplotlib")
    from lengthwise.report.run_page import build_report, run_rows, run_tables, write_figures
    from lengthwise.report.writers import FORMS, to_csv

    if format == "html":
        print(build_report(runs, out))
    elif format == "svg":
        print(*write_figures(runs, needed(out, "--format svg", "figures")), sep="\n")
    else:
        if format == "csv":
            text = to_csv(run_rows(runs))
        else:
            text = "\n".join(FORMS[format](table) for table in run_tables(runs))
        if out is None:
            print(text, end="")
        else:
            target = file_to_write(out, what="--out", begins=_BEGINS[format])
            atomic_write_text(target, text)
            print(target)


def ls(
    what: Literal["models", "corpora", "recipes", "methods", "tasks", "studies"] | None = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List models, corpora, recipes, methods, tasks and studies.

    Args:
        what: One list. Default: all of them; studies only if they are installed.

    Examples:
        lengthwise ls
        lengthwise ls recipes
        lengthwise ls models --json
    """
    from lengthwise.catalogue import LISTS, STUDIES
    from lengthwise.report.tables import Table

    names = [name for name in LISTS if name != "studies" or find_spec(STUDIES)] if what is None else [what]
    lists = {name: LISTS[name]() for name in names}
    if as_json:
        print(json.dumps(lists, indent=2))
        return
    for name, entries in lists.items():
        rows = [list(entry.values()) for entry in entries]
        print_table(Table(columns=list(entries[0]), rows=rows, caption=name))


def cp(recipe: str, file: str | None = None) -> None:
    """Copy a recipe of lengthwise to a file that you can change.

    Args:
        recipe: A name from `lengthwise ls recipes`.
        file: File or folder to write; default is RECIPE.yaml in this folder.

    Examples:
        lengthwise cp longqlora
        lengthwise cp tiny-books-gap my-recipe.yaml
    """
    from lengthwise.training.recipe import shipped_recipes

    shipped = shipped_recipes()
    require_known(recipe, shipped, "no recipe")
    target = Path(f"{recipe}.yaml") if file is None else named_path(file, what="FILE")
    if target.is_dir():
        target /= f"{recipe}.yaml"
    if target.exists():
        raise UsageError(f"{target} exists already", fix=f"lengthwise cp {recipe} ANOTHER.yaml")
    atomic_write_text(target, shipped[recipe].read_text(encoding="utf-8"))
    print(target)


def doctor(
    model: str | None = None,
    *,
    adapter: str | None = None,
    config_only: bool = False,
    as_json: AsJson = False,
) -> None:
    """Check what positions a model really uses, or show what is on this machine.

    Exits with 1 and the fix if a model does not do as it is configured, with 3 if models cannot be measured here.

    Args:
        model: As for other verbs. Default: show the machine.
        adapter: PEFT adapter on top of the model: a folder or a hub id.
        config_only: Read the model's configuration and tokenizer, no weights.

    Examples:
        lengthwise doctor
        lengthwise doctor smollm2-135m
    """
    if model is not None:
        from lengthwise.checkpoints.doctor import examine, raise_faults

        report = examine(model, adapter=adapter, config_only=config_only)
        print_report(report, as_json=as_json)
        raise_faults(report["faults"])
        return
    if adapter is not None or config_only:
        raise UsageError("--adapter and --config-only need MODEL", fix="lengthwise doctor MODEL")
    from lengthwise.catalogue import here

    found = here()
    print_plan(found, as_json=as_json, caption="this machine")
    if missing := [name for name, version in found["packages"].items() if version is None]:
        raise MissingError(
            f"{', '.join(missing)} missing: models cannot be measured here", fix=f"pip install {missing[0]}"
        )
