"""What `run` is given in Python in place of files: a case, a data frame, arrays, a networkx graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from hushgrid.broker.simulation.frames import (
    Ranges,
    Table,
    is_private,
    scenario_around,
    table_of_arrays,
    table_of_frame,
)
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.problems.records.data import Arrays
from hushgrid.node.schema.yaml_file import lay, read_yaml
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from networkx import Graph
    from pandas import DataFrame


def lay_rows(raw: Document, data: Iterable[tuple[ArrayLike, ArrayLike]]) -> Arrays:
    """The pairs (A_i, b_i) as arrays; their shapes, which are public, are laid into the scenario `raw`.
    Raises InputError if it is wrong.
    """
    expected = "a pair (A, b) for each node, A (m, q) and b (m,)"
    arrays = []
    try:
        for i, pair in enumerate(data):
            try:
                A, b = (np.asarray(part) for part in pair)
            except (TypeError, ValueError) as error:
                raise InputError(f"data[{i}]: {error}, expected {expected}") from None
            if A.ndim != 2:
                raise InputError(f"data[{i}]: found A {A.shape} and b {b.shape}, expected {expected}")
            arrays.append((A, b))
    except TypeError:
        raise InputError(f"data: found {type(data).__name__}, expected {expected}") from None
    lay(raw, "problem.data.arrays", [list(A.shape) for A, _ in arrays])
    return Arrays(arrays)


def lay_graph(raw: Document, graph: Graph) -> None:
    """The graph's edges, laid into the scenario `raw` as its network. Its node i is n<i>.
    Raises InputError if it is wrong.
    """
    if raw.get("network") is not None:
        raise InputError("network: found a section and graph=, expected one of them")
    try:
        nodes, edges, directed = list(graph.nodes), [list(edge[:2]) for edge in graph.edges], graph.is_directed()
    except (AttributeError, TypeError):
        raise InputError(f"graph: found {type(graph).__name__}, expected an undirected networkx graph") from None
    if directed:
        raise InputError("graph: found a directed graph, expected an undirected one")
    strange = [node for node in nodes if node not in range(len(nodes))]
    if strange:
        raise InputError(
            f"graph: found node {strange[0]!r:.40}, expected 0..{len(nodes) - 1} "
            f"(networkx.convert_node_labels_to_integers)"
        )
    raw["network"] = {
        "kind": "edges",
        "nodes": len(nodes),
        "edges": sorted(sorted(int(node) for node in edge) for edge in edges),
    }


class Inputs(NamedTuple):
    """What a caller of `run` has in Python, beside or in place of a scenario."""

    case: str | None = None  #: of power flow: a built-in name, or the path of a file
    zones: int | Sequence[Sequence[int]] | None = None  #: how many, or each zone's bus numbers
    frame: DataFrame | None = None  #: rows, a column each for the features and the label
    label: str | None = None  #: the label's column
    nodes: int | str | None = None  #: how many nodes share the rows, or the column that names each row's node
    rows: ArrayLike | None = None  #: (m, q) features
    labels: ArrayLike | None = None  #: (m,)
    ranges: Ranges | None = None  #: public (low, high) of each column
    data: Iterable[tuple[ArrayLike, ArrayLike]] | None = None  #: (A_i, b_i) of each node
    graph: Graph | None = None  #: the network

    @property
    def sources(self) -> list[str]:
        """The keywords that say what the run is about."""
        return [name for name in ("case", "frame", "rows", "data") if getattr(self, name) is not None]

    @property
    def table(self) -> Table | None:
        """All rows, if there are any that are not dealt to nodes yet. Raises InputError."""
        if self.frame is not None:
            return table_of_frame(self.frame, self.label, self.nodes)
        if self.rows is None:
            return None
        if isinstance(self.nodes, str):
            raise InputError(f"nodes: found {self.nodes!r}, expected a number (rows= has no column of this name)")
        return table_of_arrays(self.rows, self.labels)


def load_inputs(
    scenario: Scenario | DocumentView | str | Path | None,
    seed: int | None,
    over: DocumentView | None,
    inputs: Inputs,
) -> tuple[Scenario, Arrays | None, str]:
    """The checked scenario, its nodes' rows if the caller has them, and its name in errors. Raises InputError."""
    overrides = dict(over or {}) | ({"seed": seed} if seed is not None else {})
    if len(inputs.sources) > 1:
        raise InputError(f"run: found {' and '.join(inputs.sources)}, expected one of them")
    if isinstance(scenario, Scenario):
        if overrides or any(value is not None for value in inputs):
            raise InputError("set: found overrides of a checked Scenario, expected a path or a mapping")
        return scenario, None, "scenario"
    raw, file, base = read_scenario(scenario) if scenario is not None else ({}, "scenario", Path())
    arrays = None
    if (table := inputs.table) is not None:
        nodes = table.nodes(inputs.nodes if isinstance(inputs.nodes, int) else _nodes_of(raw, inputs.graph))
        done = ""
        if scenario is None:
            raw, table, done = scenario_around(table, nodes, inputs.ranges, overrides)
        elif inputs.ranges is not None:
            raise InputError("ranges: found beside a scenario, expected none (its problem.row_bound bounds the rows)")
        arrays = table.dealt(nodes, (done,) if done else ())
        data = (raw.get("problem") or {}).get("data") or {}  # of it stays what does not say where the rows are
        lay(raw, "problem.data", {key: data[key] for key in ("normalize", "threshold") if key in data})
        lay(raw, "problem.data.arrays", [list(A.shape) for A, _ in arrays.shards])
    elif inputs.data is not None:
        arrays = lay_rows(raw, inputs.data)
    elif inputs.case is not None:
        raw = raw or grid_scenario(inputs.zones, overrides)
        lay(raw, "problem.case", inputs.case)
        if inputs.zones is not None:
            zones = inputs.zones
            lay(raw, "problem.zones", zones if isinstance(zones, int) else [[int(bus) for bus in z] for z in zones])
    elif scenario is None:
        raise InputError("run: found no scenario, expected one, or case=, or frame= and label=, or rows= and labels=")
    if inputs.graph is not None:
        lay_graph(raw, inputs.graph)
    for key, value in overrides.items():
        lay(raw, key, value)
    return scenario_from(raw, file, base), arrays, file


def read_scenario(scenario: DocumentView | str | Path) -> tuple[Document, str, Path]:
    """The scenario's mapping, its name in errors, and what its paths are relative to. Raises InputError."""
    if not isinstance(scenario, Mapping):
        path = find(scenario)
        return read_yaml(path), str(path), path.parent
    try:
        raw: Document = msgspec.json.decode(msgspec.json.encode(scenario), type=Document)
    except TypeError as error:
        raise InputError(f"scenario: {error}, expected what a YAML file can hold") from None
    return raw, "scenario", Path()


def _nodes_of(raw: DocumentView, graph: Graph | None) -> int | None:
    """How many nodes a scenario, or the graph beside it, says that there are."""
    if graph is not None:
        return len(graph)
    sections = (raw.get("network"), (raw.get("problem") or {}).get("data"))
    each = (section.get("nodes") for section in sections if isinstance(section, Mapping))
    return next((nodes for nodes in each if isinstance(nodes, int)), None)


def grid_scenario(zones: int | Sequence[Sequence[int]] | None, over: DocumentView) -> Document:
    """The scenario of a case that comes without one: least cost over its zones. Raises InputError."""
    if zones is None and "problem.zones" not in over:
        raise InputError("zones: missing, expected the number of zones, or each zone's bus numbers")
    return {
        "hushgrid": 1,
        "name": "grid",
        "problem": {"kind": "zones"},
        "algorithm": {"name": "consensus-admm", "rounds": 200} | ({} if is_private(over) else {"variant": "none"}),
    }
