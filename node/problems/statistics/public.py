"""The public part of a scenario's statistic, and the rows of its nodes where the program that makes the plan has
them.
"""

from __future__ import annotations

from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.kind import ScenarioSections
from hushgrid.node.problems.records.data import Arrays, Loaded
from hushgrid.node.problems.records.data import load as load_rows
from hushgrid.node.problems.records.device import Reader, declared_rows
from hushgrid.node.problems.statistics.section import StatisticsPlan


def public(
    sections: ScenarioSections, file: str = "scenario", arrays: Arrays | None = None, read: Reader = load_rows
) -> tuple[Loaded | None, StatisticsPlan]:
    """Every node's rows (None if they are on the devices), and what of the problem is public. Raises InputError.

    arrays: the rows themselves, if they were given in Python. read: what reads them.
    """
    problem = sections.problem
    try:
        loaded = None
        if problem.data.devices is not None:
            features, rows = declared_rows(problem.data.devices, problem.data.nodes)
        else:
            loaded = _loaded(sections, arrays, read)
            features, rows = loaded.shards[0].A.shape[1], [len(s.b) for s in loaded.shards]
        plan = StatisticsPlan(statistic=problem.statistic, features=features, rows=rows)
        plan.statistic.check(features)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return loaded, plan


def _loaded(sections: ScenarioSections, arrays: Arrays | None, read: Reader) -> Loaded:
    try:
        return read(sections.problem.data, Path(), sections.problem.kind, sections.problem.data.nodes, arrays)
    except InputError as error:
        raise InputError(f"problem.{error}" if str(error).startswith("data") else str(error)) from None
