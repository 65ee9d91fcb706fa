"""What a task asks: questions as plain data, ready to be tokenised, kept and scored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Mode = Literal["greedy", "likelihood"]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One prompt, what is right, and where it stands in a table. JSON values only."""

    key: str
    """Unique in its run."""
    unit: str
    """What is independent of other units: resampled whole for intervals."""
    context: str
    """Questions of equal `context` have prompts that begin alike, and are read together."""
    prompt: str
    golds: list[str]
    candidates: list[str] = field(default_factory=list)
    """Answers to rank, the right one among them; empty where there are none."""
    classes: list[str] = field(default_factory=list)
    """Names of all classes, for scorers that need them."""
    about: str = ""
    """The question itself, where the scorer looks at it."""
    new_tokens: int = 32
    length: int | None = None
    """Tokens that the prompt was made for."""
    depth: float | None = None
    """Where the answer stands, per cent of the context."""
    bucket: str | None = None
    reached: float | None = None
    """Where the answer came to stand; sentences do not split."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `Question(**plain)` is equal."""
        return asdict(self)
