"""How much of what can be tried is tried: a part of the examples of a property, or all, as `make test-long` asks for.

HUSHGRID_EXAMPLES=thorough chooses all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

THOROUGH = os.environ.get("HUSHGRID_EXAMPLES") == "thorough"
PART, LEAST = 0.2, 10


def of(number: int, **options: Any) -> settings:
    """Settings for a property that `number` examples try thoroughly; a part of them is the same ones every time.

    No test is timed: a busy machine is no defect.
    """
    tried = number if THOROUGH else max(min(number, LEAST), round(PART * number))
    return settings(max_examples=tried, deadline=None, derandomize=not THOROUGH, **options)


def few(cases: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Parameters of a test: those `chosen`, and the others for `make test-long`."""
    return [
        case if case in chosen else pytest.param(*case if isinstance(case, tuple) else [case], marks=pytest.mark.long)
        for case in cases
    ]
