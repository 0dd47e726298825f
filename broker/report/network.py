"""The parts of a report that only a data problem has: the walk in words, the network it went over, the solution, or a
sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hushgrid.broker.report.drawings import gridmap, plots
from hushgrid.broker.report.drawings.numbers import fixed, number
from hushgrid.broker.report.drawings.page import facts, figure, paragraphs, table
from hushgrid.broker.report.run_directory import Run
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.statistics import STATISTICS

SHORT = 32  #: entries of x, and nodes, that a table lists all
LARGEST = 12  #: of longer ones
LONGEST = 60  #: characters of a column's name


def walk_words(walk: Any) -> str:
    """result.json's `walk` as words, such as "Hamiltonian cycle of 8 nodes"; "" where there is none."""
    kind, cycle = (walk.get("kind"), walk.get("cycle")) if isinstance(walk, Mapping) else (None, None)
    return {
        "random": "random, to any neighbour alike",
        "metropolis": "random, to a neighbour of many neighbours less often (Metropolis)",
        "given": "as given in the scenario",
        "hamiltonian": f"Hamiltonian cycle of {len(cycle or ())} nodes",
        "closed-walk": f"closed walk of {len(cycle or ())} steps (no Hamiltonian cycle was found)",
    }.get(str(kind), "")


def network(run: Run) -> gridmap.Network | None:
    """Nodes and edges of the resolved scenario, and the cycle a walk repeats; None if no edges are listed.

    Raises InputError if the edges are not pairs of its nodes.
    """
    names, pairs = run.nodes(), (run.scenario.get("network") or {}).get("edges")
    cycle = (run.result.get("walk") or {}).get("cycle") or ()
    if not names or pairs is None:
        return None
    try:
        edges = tuple((names[a], names[b]) for a, b in pairs)
        walk = frozenset(frozenset((names[a], names[b])) for a, b in pairwise([*cycle, *cycle[:1]]))
    except (TypeError, ValueError, IndexError):
        path, n = run.path / "scenario.yaml", len(names)
        raise InputError(f"{path}: network.edges: found {pairs!r:.60}, expected pairs of nodes below {n}") from None
    return gridmap.Network(nodes=names, edges=edges, walk=walk if len(walk) < len(edges) else frozenset())


def drawing(run: Run) -> str:
    """The network as a figure."""
    grid = network(run)
    if grid is None and run.algorithm.pattern == "star":
        return paragraphs(["The network is not drawn: each node talks to the coordinator alone."])
    if grid is None:
        return paragraphs(["The network is not drawn: the resolved scenario does not list its edges."])
    n, m = len(grid.nodes), len(grid.edges)
    if n > gridmap.MAX_DRAWN or m > gridmap.MAX_EDGES:
        return paragraphs([f"The network is not drawn: it has {number(n)} nodes and {number(m)} edges."])
    caption = (
        f"{number(n)} nodes, {number(m)} edges: messages go along an edge, from a node to its neighbour. "
        f"{'The edges of the walk are dark. ' if grid.walk else ''}Lengths mean nothing."
    )
    return figure("Who talks to whom", gridmap.svg(grid, "The network of nodes"), caption)


def solution(run: Run) -> str:
    """x entry by entry, or its largest entries; then how near each node's own copy is to it."""
    x = _numbers(run.solution.get("x", np.zeros(0)))
    iterates = {name: _numbers(run.solution[f"x_{name}"]) for name in run.nodes() if f"x_{name}" in run.solution}
    if not x.size or not iterates or any(v.shape != x.shape for v in iterates.values()):
        return paragraphs(["solution.npz holds no x with a copy of each node."])
    copies = np.array(list(iterates.values()))
    far = np.linalg.norm(copies - x, axis=1)
    zeros = int(np.sum(x == 0))
    figures = [("Length of x", number(x.size)), ("Euclidean norm of x", number(float(np.linalg.norm(x)), 4))]
    if zeros:
        figures.append(("Entries that are zero", number(zeros)))
    figures.append(("Largest distance of a node's copy", number(float(far.max()))))
    entries = _first(np.abs(x))
    rows = [
        (_label(run, k, x.size), *(number(float(v), 4) for v in (x[k], copies[:, k].min(), copies[:, k].max())))
        for k in entries
    ]
    which = "Every entry" if len(entries) == x.size else f"The {LARGEST} largest of {number(x.size)} entries"
    answer = "what the token carried at the end" if run.walks else "the mean of all copies"
    sentence = f"{which} of x, {answer}, and the range of the nodes' own copies."
    out = facts(figures) + table(("Entry", "x", "Least copy", "Largest copy"), rows, sentence)
    names = list(iterates)
    nodes = _first(far)
    rows = [(names[i], number(float(np.linalg.norm(copies[i])), 4), number(float(far[i]))) for i in nodes]
    which = "Every node" if len(nodes) == len(names) else f"The {LARGEST} farthest of {number(len(names))} nodes"
    sentence = (
        f"{which}: the Euclidean norm of its own copy x_i, and its distance from x. solution.npz has all of them."
    )
    return out + table(("Node", "|x_i|", "|x_i − x|"), rows, sentence)


def added(run: Run) -> str:
    """A sum entry by entry, or its largest entries, and its noise."""
    rows = run.tables.get("sum", ())
    if not rows:
        return paragraphs(["The run ended before there was a sum."])
    value = np.array([row["value"] for row in rows])
    entries, out = _first(np.abs(value)), ""
    kind = str(run.scenario["problem"].get("kind"))
    if value.size > 1 and STATISTICS[kind].in_order:
        drawn = plots.bars("sum", "The sum", np.arange(1.0, value.size + 1), value, xlabel="entry", ylabel=kind)
        out = figure(
            "The sum", drawn, "Entries in the order of the table. Noise can make an entry negative; it is not drawn."
        )
    which = "Every entry" if len(entries) == value.size else f"The {LARGEST} largest of {number(value.size)} entries"
    sentence = f"{which}, and the standard deviation of its noise. sum.csv has all of them."
    cells = [(rows[k]["entry"][:LONGEST], *_to_noise(rows[k]["value"], rows[k]["sd"])) for k in entries]
    return out + table(("Entry", "Value", "Noise"), cells, sentence)


def _to_noise(value: float, sd: float) -> tuple[str, str]:
    """A value and the standard deviation of its noise, both to the second digit of the latter."""
    if not 0 < sd < math.inf:
        return number(value, 5), number(sd)
    places = 1 - math.floor(math.log10(sd))
    return fixed(round(value, places), max(places, 0)), fixed(round(sd, places), max(places, 0))


def _numbers(values: np.ndarray) -> np.ndarray:
    return values.ravel() if np.issubdtype(values.dtype, np.floating) else np.zeros(0)


def _first(size: np.ndarray) -> Sequence[int]:
    """All indices in order, or those of the largest."""
    return range(size.size) if size.size <= SHORT else np.argsort(-size, kind="stable")[:LARGEST].tolist()


def _label(run: Run, k: int, size: int) -> str:
    """Entry k of x: by the names of the columns if the data have them, else by its number."""
    names = run.solution.get("keys_x", np.zeros(0))
    if names.shape == (size,):
        return str(names[k])[:LONGEST]
    classes = (run.scenario.get("problem") or {}).get("classes")
    if not isinstance(classes, int) or classes < 1 or size % classes:
        return str(k)
    return f"class {k // (size // classes)}, feature {k % (size // classes)}"
