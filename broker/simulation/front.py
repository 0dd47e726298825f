"""`hushgrid.run`: a whole fleet on one machine, from a scenario or from what a caller has in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation.fleet import run_fleet
from hushgrid.broker.simulation.frames import Ranges
from hushgrid.broker.simulation.inputs import Inputs, load_inputs
from hushgrid.broker.simulation.interrupts import Interrupts
from hushgrid.broker.simulation.progress import Progress
from hushgrid.grid_cases import archive
from hushgrid.grid_cases.case import Case
from hushgrid.kernels.algorithms.registry import offer_installed, plug
from hushgrid.kernels.types import DocumentView
from hushgrid.node.config.scenario import Scenario

if TYPE_CHECKING:
    from networkx import Graph
    from pandas import DataFrame

__all__ = ["Result", "run"]


def run(
    scenario: Scenario | DocumentView | str | Path | None = None,
    transport: str = "memory",
    out: str | Path | None = None,
    state: str | Path | None = None,
    seed: int | None = None,
    set: DocumentView | None = None,
    *,
    case: Case | str | Path | None = None,
    zones: int | Sequence[Sequence[int]] | None = None,
    frame: DataFrame | None = None,
    label: str | None = None,
    rows: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    nodes: int | str | None = None,
    ranges: Ranges | None = None,
    data: Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
    graph: Graph | None = None,
    plugins: Sequence[str] = (),
    broker: str = "auto",
    progress: Progress | None = None,
    silent_s: float = 30.0,
    file: str = "",
    interrupts: Interrupts | None = None,
) -> Result:
    """Run a scenario and return its Result; with `out`, also leave a run directory there.

    scenario: the name of one that comes with the program, a path, a mapping as in the YAML file, or a checked Scenario.
    transport: memory or mqtt. set: dotted keys of the scenario -> values laid over it. state: a directory whose ledgers
    count over runs. plugins: modules of your own whose algorithms may run. broker: as `hushgrid run --broker`.

    Without a scenario, a simple one is made around your data; it hides nothing unless `set` has `privacy.epsilon`:
    - case (a `Case` of `load`, a built-in name or a file) and zones (a number, or each zone's buses): dispatch at least
      cost. A private run also needs `privacy.adjacency` in `set`.
    - frame (a pandas DataFrame) and label (a column), or rows (m, q) and labels (m,): one model for all nodes, logistic
      for two classes, else least squares. nodes: how many share the rows, or the column that names each row's node.
      ranges: column -> (low, high), clipped to and scaled from. A private run needs the ranges of all columns (of the
      label too if it is a number), or `problem.row_bound` in `set`. These bounds are public, so they must come from
      you: what is measured on the data would tell of them.
    With a scenario they take the place of its case or of its `problem.data`, as these do:
    - data: a pair (A_i, b_i) for each node, shapes (m_i, q) and (m_i,). graph: an undirected networkx graph of nodes
      0..n-1, in place of `network`.

    file: the name of a checked Scenario in errors. interrupts: the caller's, if it handles the signals itself. Raises
    InputError, Refused or Stopped, each one line, and KeyboardInterrupt if the run is asked to end while no messages
    are exchanged.
    """
    if not isinstance(scenario, Scenario):  # the algorithm of a checked one is known
        offer_installed()
    plug(plugins, "plugins")
    with _case_file(case) as place:
        inputs = Inputs(place, zones, frame, label, nodes, rows, labels, ranges, data, graph)
        checked, arrays, name = load_inputs(scenario, seed, set, inputs)
        return run_fleet(
            checked, file or name, transport, out, state,
            arrays=arrays, broker=broker, progress=progress, silent_s=silent_s, interrupts=interrupts,
        )  # fmt: skip


@contextmanager
def _case_file(case: Case | str | Path | None) -> Iterator[str | None]:
    """What a scenario may name as its case: a name or a path as it is, a `Case` as a file for the time of the run."""
    if not isinstance(case, Case):
        yield None if case is None else str(case)
        return
    with tempfile.TemporaryDirectory(prefix="hushgrid-case-") as folder:
        path = Path(folder) / "case.npz"
        archive.write(case, path)
        yield str(path)
