"""P v of all nodes at once, P = I - W with the Metropolis weights of kernels/algorithms/mixing.py: for whole runs in
arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import kernel_or
from hushgrid.kernels.types import Index, Matrix, Vector


class Edges(NamedTuple):
    """Node i's neighbours are neighbours[start_i : start_{i+1}], their W_ij beside them; the Metropolis weights of a
    graph.
    """

    start: Index  #: (n + 1,)
    neighbours: Index  #: (2 |E|,)
    weight: Vector  #: (2 |E|,)

    @classmethod
    def from_graph(cls, graph: Graph) -> Edges:
        start = np.cumsum([0, *(len(neighbours) for neighbours in graph.neighbours)], dtype=np.int64)
        neighbours = np.array([j for neighbours in graph.neighbours for j in neighbours], dtype=np.int64)
        return cls(start, neighbours, np.array([w for i in range(graph.n) for w in metropolis(graph, i)]))


def _mix(start: Index, neighbours: Index, weight: Vector, v: Matrix, out: Matrix) -> None:
    node = np.repeat(np.arange(start.size - 1), np.diff(start))
    out[:] = np.add.reduceat(weight[:, None] * (v[node] - v[neighbours]), start[:-1])  # no node is without a neighbour


@kernel_or(_mix)
def mix(start: Index, neighbours: Index, weight: Vector, v: Matrix, out: Matrix) -> None:
    """out (n, d) = P v of all nodes' v (n, d)."""
    n, d = v.shape
    if out.shape != v.shape or start.size != n + 1 or neighbours.size != weight.size or start[n] != neighbours.size:
        raise ValueError("start, near, weight, v, out: shape mismatch")
    for i in range(n):
        for k in range(d):
            out[i, k] = 0.0
        for e in range(start[i], start[i + 1]):
            j, w = neighbours[e], weight[e]
            for k in range(d):
                out[i, k] += w * (v[i, k] - v[j, k])
