"""What the first tier leaves to `make test-runs`: files and tests with the mark `runs`, and most of every cross
product.

`tests/mutations.py` writes the marks. Of a test under two or more `parametrize`, the first tier runs a fixed part that
has every value of each of them at least once; so does `make test-system`, which leaves the rest to `make test-long`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

FILE, TEST = "pytestmark = pytest.mark.runs", "@pytest.mark.runs"
LATER = ("runs", "long")


def is_left_out(file: Path) -> bool:
    """Whether all of a file belongs to the second tier, so that the first need not import it."""
    return file.suffix == ".py" and f"\n{FILE}\n" in file.read_text()


def mark_products(items: Iterable[pytest.Item]) -> None:
    """Marks what a covering part of each cross product leaves out: `long` a system test, `runs` another one."""
    seen: dict[object, set[object]] = defaultdict(set)
    for item in items:
        tables = [mark.args[0] for mark in item.iter_markers("parametrize")]
        if len(tables) < 2 or any(item.get_closest_marker(name) for name in LATER):
            continue
        names = [table.split(",")[0].strip() if isinstance(table, str) else table[0] for table in tables]
        indices = item.callspec.indices  # type: ignore[attr-defined]
        values, met = {(name, indices[name]) for name in names}, seen[item.parent, item.originalname]  # type: ignore[attr-defined]
        if values <= met:
            item.add_marker(pytest.mark.long if item.get_closest_marker("system") else pytest.mark.runs)
        met |= values
