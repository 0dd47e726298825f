"""The declared shape of a scenario's data, and the scenario without its data: nothing here opens a file."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.config.scenario import Scenario, scenario_from

LARGEST = 2000  #: unknowns of an optimum, which takes their cube


class Shape(NamedTuple):
    """What is public of the data."""

    rows: tuple[int, ...]  #: m of each node
    features: int  #: q
    unit: bool  #: every row is divided by its norm


def checked(raw: DocumentView, file: str, rows: int | None, features: int | None) -> Shape:
    """The shape of a scenario that can be planned. Raises InputError."""
    plain = deepcopy(dict(raw))
    scenario = scenario_from(plain, file)
    if scenario.kind.sharing != "copies" or not hasattr(scenario.problem, "data"):
        tag, zones = scenario.problem.__struct_config__.tag, not scenario.kind.records
        how = (
            "(a budget for loads: hushgrid budget plan DEVICE)"
            if zones
            else "to learn from (the noise of a sum: hushgrid check)"
        )
        raise InputError(f"{file}: problem.kind: found {tag}, expected rows of data {how}")
    variant, p = scenario.algorithm.variant, scenario.privacy
    if variant != "guarded" or p is None:
        raise InputError(f"{file}: algorithm.variant: found {variant}, expected guarded, with a privacy section")
    if p.epsilon is None:
        raise InputError(f"{file}: privacy.epsilon: found per_answer, expected the total (or --epsilon E)")
    shape = shape_of(scenario, rows, features, file)
    size = shape.features * (scenario.problem.declared_classes or 1)
    if size > LARGEST:
        raise InputError(
            f"{file}: problem: found {size} unknowns, expected at most {LARGEST} (their optimum is solved for)"
        )
    return shape


def shape_of(scenario: Scenario, rows: int | None, features: int | None, file: str) -> Shape:
    """The declared shape. `rows` (of all nodes), `features`: said by the caller, before the scenario.

    Raises InputError.
    """
    data, network = scenario.problem.data, scenario.network
    n = network.build().n if network is not None else data.nodes
    each: Sequence[int] | None = None
    q = features or data.features
    if data.devices is not None:
        m = data.devices.rows
        each, q = (list(m) if not isinstance(m, int) else [m] * n if n else None), q or data.devices.features
    elif data.synthetic is not None:
        each, q = [data.synthetic.rows] * (n or 0), q or data.synthetic.features
    elif data.arrays is not None:
        each, q = [m for m, _ in data.arrays], q or data.arrays[0][1]
    elif data.files is not None:
        n = len(data.files)
    if isinstance(data.rows, tuple):
        each = data.rows
    n = n or (len(each) if each else None)
    if n is None:
        raise InputError(f"{file}: problem.data.nodes: missing, expected the number of nodes")
    if rows or not each:
        total = rows or (data.rows if isinstance(data.rows, int) else None)
        if total is None or total < n:
            size = "missing" if total is None else f"found {total} for {n} nodes"
            raise InputError(
                f"{file}: problem.data.rows: {size}, expected how many rows the nodes have (or --rows N): "
                "no data file is opened"
            )
        each = [(total + i) // n for i in range(n)][::-1]
    if len(each) != n:
        raise InputError(f"{file}: problem.data: found rows of {len(each)} nodes, expected {n} (network.nodes)")
    if q is None:
        raise InputError(
            f"{file}: problem.data.features: missing, expected the number of features (or --features N): "
            "no data file is opened"
        )
    return Shape(tuple(each), q, data.normalize is not None)


def without_data(raw: DocumentView, shape: Shape) -> Document:
    """The scenario's mapping with its data on devices that nobody asks, and nothing that is a file."""
    scenario = deepcopy(dict(raw))
    for key in ("seed", "run"):
        scenario.pop(key, None)
    scenario["problem"].pop("test", None)
    scenario["problem"]["data"] = {"devices": {"features": shape.features, "rows": list(shape.rows)}}
    return scenario
