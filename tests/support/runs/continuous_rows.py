"""Intervals of nodes with rows in this process, around a coordinator."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hushgrid.broker.simulation.setup import prepare
from hushgrid.node.config.scenario import scenario_from
from tests.support.runs.continuous_fleet import Fleet


class RowFleet(Fleet):
    """As `Fleet`, from a scenario of records. Rows do not change."""

    def __init__(self, directory: Path, raw: dict[str, Any], **keys: Any) -> None:
        self.rows = prepare(scenario_from(raw, "scenario"))
        shown: Any = SimpleNamespace(
            plan=self.rows.plan, problem=SimpleNamespace(case=""), loads=lambda name: np.zeros(0)
        )
        directory.mkdir(exist_ok=True)
        super().__init__(directory, shown, **keys)

    def _zone(self, zone: str) -> Any:
        return self.rows.device(zone)

    @property
    def begun(self) -> np.ndarray:
        """Where the coordinator's machine begins."""
        return self.centre.machine().state.w

    @property
    def w(self) -> np.ndarray:
        """Where it has come to."""
        return self.centre.driver.machine.state.w
