"""What `run` is given in Python in place of files: the nodes' rows as arrays, the network as a networkx graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.problems.records.data import Arrays
from hushgrid.node.schema.yaml_file import lay, read_yaml

if TYPE_CHECKING:
    from networkx import Graph


def lay_rows(raw: dict[str, Any], data: Iterable[tuple[ArrayLike, ArrayLike]]) -> Arrays:
    """The pairs (A_i, b_i) as arrays; their shapes, which are public, are laid into the scenario `raw`. InputError."""
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
    return arrays


def lay_graph(raw: dict[str, Any], graph: Graph) -> None:
    """The graph's edges, laid into the scenario `raw` as its network. Its node i is n<i>. InputError."""
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
            f"graph: found node {strange[0]!r:.40}, expected 0..{len(nodes) - 1} (networkx.convert_node_labels_to_integers)"
        )
    raw["network"] = {
        "kind": "edges",
        "nodes": len(nodes),
        "edges": sorted(sorted(int(node) for node in edge) for edge in edges),
    }


def load_inputs(
    given: Scenario | Mapping[str, Any] | str | Path,
    seed: int | None,
    over: Mapping[str, Any] | None,
    data: Iterable[tuple[ArrayLike, ArrayLike]] | None,
    graph: Graph | None,
) -> tuple[Scenario, Arrays | None]:
    """The checked scenario, and its nodes' rows if they were given as arrays."""
    overrides = dict(over or {}) | ({"seed": seed} if seed is not None else {})
    if isinstance(given, Scenario):
        if overrides or data is not None or graph is not None:
            raise InputError("set: found overrides of a checked Scenario, expected a path or a mapping")
        return given, None
    if isinstance(given, Mapping):
        file, base = "scenario", Path()
        try:
            raw = msgspec.json.decode(msgspec.json.encode(given))
        except TypeError as error:
            raise InputError(f"scenario: {error}, expected what a YAML file can hold") from None
    else:
        file, base = str(given), Path(given).parent
        raw = read_yaml(Path(given))
    arrays = None if data is None else lay_rows(raw, data)
    if graph is not None:
        lay_graph(raw, graph)
    for key, value in overrides.items():
        lay(raw, key, value)
    return scenario_from(raw, file, base), arrays
