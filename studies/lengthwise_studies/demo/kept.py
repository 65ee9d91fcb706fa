"""What is too long for a demo: SmolLM2-135M before and after YaRN, as it was kept in the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lengthwise.report.html import Section
from lengthwise.report.sentence import said
from lengthwise.results import Results, Row

_ROOT = Path(__file__).parents[3]
_NUMBERS = _ROOT / "studies/results/limit.json"
_PICTURES = {
    "wide": _ROOT / "docs/figures/limit-smollm2.svg",
    "narrow": _ROOT / "docs/figures/limit-smollm2-narrow.svg",
}
"""By the class of the page's style."""
_NAMES = {"limit-smollm2": "SmolLM2-135M", "limit-yarn2": "SmolLM2-135M with YaRN x2"}


def kept_section() -> list[Section]:
    """The last section of the page; none where the studies are installed without their repository."""
    if not all(path.is_file() for path in (_NUMBERS, *_PICTURES.values())):
        return []
    plain = json.loads(_NUMBERS.read_text(encoding="utf-8"))
    runs = [plain["runs"][name] for name in _NAMES]
    minutes = round(sum(run["provenance"]["seconds"] for run in runs) / 60)
    return [
        Section(
            title="Kept: a real model, before and after YaRN",
            lead=[_sentence(plain, name) for name in _NAMES],
            paragraphs=[
                f"Not measured in this run, but kept from {runs[0]['provenance']['started'][:10]}: it took {minutes} "
                "minutes. SmolLM2-135M was trained for 8,192 tokens.",
            ],
            passages=[
                Markup("<figure>{}</figure>").format(
                    Markup("").join(
                        Markup('<div class="card {}">{}</div>').format(
                            name, Markup(path.read_text(encoding="utf-8"))
                        )
                        for name, path in _PICTURES.items()
                    )
                )
            ],
            notes=[
                "Read: 8 windows of up to 20,480 tokens, from 6 books. Used means: up to there a repeated passage "
                "keeps a tenth of what it is worth nearby.",
                f"The numbers are in `{_NUMBERS.relative_to(_ROOT)}`.",
            ],
        )
    ]


def _sentence(plain: dict[str, Any], name: str) -> str:
    lines = [values for *_, key in plain["runs"][name]["shows"] for values in plain["numbers"][key]]
    rows = [Row(model=name, **dict(zip(plain["columns"], values, strict=True))) for values in lines]
    return said(Results(kind="limit", model_name=_NAMES[name], config={}, rows=rows)).sentence
