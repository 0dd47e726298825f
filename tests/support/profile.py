"""A plugin that records what each test costs: `pytest -p tests.support.profile`, into $HUSHGRID_PROFILE.

One line a case, `CPU seconds, its name`: the process's own time, which does not depend on what else the machine does.
Each worker of xdist adds its lines at its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator

import pytest

COSTS: dict[str, float] = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    began = time.process_time()
    try:
        return (yield)
    finally:
        COSTS[item.nodeid] = time.process_time() - began


def pytest_sessionfinish() -> None:
    with open(os.environ["HUSHGRID_PROFILE"], "a") as file:
        file.writelines(f"{seconds:.4f} {name}\n" for name, seconds in COSTS.items())
