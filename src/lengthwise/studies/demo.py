"""The demo: a real model measured, trained and measured again, and a small controlled study; one page."""

from __future__ import annotations

from pathlib import Path

from lengthwise.files import atomic_write_text
from lengthwise.report.html import render_page
from lengthwise.studies.produced import Produced
from lengthwise.studies.real_model import real_model_section, run_real_model
from lengthwise.studies.tiny_books import run_tiny_books
from lengthwise.studies.tiny_books_page import provenance_of, study_section

LEAD = (
    "Do a language model's predictions depend on how much context is cut off, and what happens when it is "
    "trained so that they do not?",
    "SCE, the paper's number, is the sum of two parts: entropy (how sharp the predictions are) and "
    "Jeffreys (how far the two predictions disagree). They are always shown apart, because only the second is "
    "alignment.",
)


def produce_demo(out: Path, *, resume: bool = False, overwrite: bool = False) -> Produced:
    """Run both parts (or go on with them) and write `report.html` to `out`.

    Raises:
        Interrupted: Ctrl-C; what is finished stays, and the same command with `resume` goes on.
    """
    real = run_real_model(out / "real-model", resume=resume, overwrite=overwrite)
    study = run_tiny_books(out / "tiny-books", resume=resume, overwrite=overwrite)
    page = out / "report.html"
    sections = [real_model_section(real, out / "real-model"), study_section(study)]
    atomic_write_text(
        page,
        render_page(
            "Do predictions hold as the context grows?",
            LEAD,
            sections,
            {"A. A real model": provenance_of(real), "B. The small study": provenance_of(study)},
            partial=real.partial or study.partial,
        ),
    )
    return Produced(page, [*sections[0].tables, *sections[1].tables])
