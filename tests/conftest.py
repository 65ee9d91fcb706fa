from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left alone with the study at the end."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.path.name == "test_tiny_books.py" and item.path.parent.name == "studies":
        return 0
    return 1 if item.get_closest_marker("slow") else 2
