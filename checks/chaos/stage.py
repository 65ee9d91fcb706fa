"""What the trials play on: a tiny model, two others beside it, texts, a recipe, and the verbs that run on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RECIPE = """\
model: {model}
data:
  corpus: {text}
  split: all
length: 32
steps: 6
seed: 1
save_every: 2
objective:
  alpha: 2.0
  divergence: jeffreys
batch:
  size: 4
  micro: 2
optimizer:
  learning_rate: 1.0e-3
  warmup_steps: 2
device: cpu
"""


@dataclass(frozen=True)
class Stage:
    """A folder with everything that trials need."""

    folder: Path
    model: Path
    other_model: Path
    text: Path
    recipe: Path

    @property
    def verbs(self) -> dict[str, list[str]]:
        """A small run of each verb, without --out."""
        model, text = str(self.model), ["--text", str(self.text), "--split", "all"]
        return {
            "measure": ["measure", model, *text, "--lengths", "32", "--windows", "12"],
            "ppl": ["ppl", model, *text, "--lengths", "64", "--windows", "40"],
            "limit": ["limit", model, *text, "--max-length", "512", "--reference", "64", "--windows", "4"],
            "longppl": ["longppl", model, *text, "--max-length", "128", "--short", "32", "--windows", "12"],
            "eval": ["eval", model, "needle_single", *text, "--lengths", "400", "--samples", "3"],
            "train": ["train", str(self.recipe)],
        }


def build_stage(folder: Path) -> Stage:
    """Write models, texts and the recipe below `folder`."""
    from lengthwise.testing import save_tiny_model, tiny_text

    folder.mkdir(parents=True, exist_ok=True)
    model = save_tiny_model(folder / "model", max_position_embeddings=1024)
    other = save_tiny_model(folder / "other", seed=1, max_position_embeddings=1024)
    text = folder / "text"
    text.mkdir(exist_ok=True)
    for index in range(6):
        (text / f"{index}.txt").write_text(tiny_text(3000, seed=index))
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(model=model, text=text))
    return Stage(folder, model, other, text, recipe)
