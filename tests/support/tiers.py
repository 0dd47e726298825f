"""What the first tier leaves to `make test-runs`: files and tests with the mark `runs`, and most of every cross
product.

`tests/mutations.py` writes the marks. Of a test with two or more parameters (`parametrize`, or a fixture's), the first
tier runs a fixed part that has every value of each of them at least once; so does `make test-system`, which leaves the
rest to `make test-long`.
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
        call = getattr(item, "callspec", None)
        if call is None or any(item.get_closest_marker(name) for name in LATER):
            continue
        tables = [mark.args[0] for mark in item.iter_markers("parametrize")]
        factors = [tuple(n.strip() for n in (t.split(",") if isinstance(t, str) else t)) for t in tables]
        factors += [(name,) for name in call.params if not any(name in factor for factor in factors)]  # of fixtures
        if len(factors) < 2:
            continue
        # A row of a table is the same objects in every case that it is part of.
        values = {(factor, *(id(call.params[name]) for name in factor)) for factor in factors}
        met = seen[item.parent, item.originalname]  # type: ignore[attr-defined]
        if values <= met:
            item.add_marker(pytest.mark.long if item.get_closest_marker("system") else pytest.mark.runs)
        met |= values
