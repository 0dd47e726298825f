"""Runs under fire are tried on mosquitto at each commit, and on the embedded broker in `make test-long`."""

from __future__ import annotations

import pytest

FIRE = ("test_walk_kill", "test_round_kill", "test_kill", "test_masked_runs", "test_recount")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent.name == "whole_runs" and item.path.stem in FIRE:
            parameters = getattr(item, "callspec", None)
            if parameters is not None and "embedded" in parameters.params.values():
                item.add_marker(pytest.mark.long)
