"""Loading without transformers' own bars and tables; what matters is checked and said by us."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_transformers(*, bars: bool = False) -> Iterator[None]:
    """Inside, transformers reports errors only, and shows no progress bars unless `bars` is set."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    hide_bars = not bars and logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if hide_bars:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # PEFT asks for the old name of a property that transformers has renamed.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)
        if hide_bars:
            logging.enable_progress_bar()
