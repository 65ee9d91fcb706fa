"""Loading without the progress bars, tables and remarks of transformers, PEFT and bitsandbytes."""

from __future__ import annotations

import contextlib
import logging as standard_logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_transformers(*, bars: bool = False) -> Iterator[None]:
    """Silence transformers and bitsandbytes inside, errors excepted; `bars` shows progress bars."""
    from transformers.utils import logging

    # PEFT imports it, which then remarks on a kernel for 4-bit weights, also where there are none.
    bitsandbytes = standard_logging.getLogger("bitsandbytes")
    level = bitsandbytes.level
    bitsandbytes.setLevel(standard_logging.ERROR)
    verbosity = logging.get_verbosity()
    hide_bars = not bars and logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if hide_bars:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # PEFT reads a property by the name that it had before transformers renamed it.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)
        bitsandbytes.setLevel(level)
        if hide_bars:
            logging.enable_progress_bar()
