"""What a run leaves, typed: result.json in sections, and `Result`, the run in Python with its arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from hushgrid.broker.report import run_directory as rundir
from hushgrid.grid_cases.setpoints import COLUMNS as SETPOINTS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandapower import pandapowerNet
    from pandas import DataFrame

    from hushgrid.grid_cases.case import Case

#: The columns of history.csv. A row is a round, or a block of n activations of a run with a token.
HISTORY = {
    "round": "the round, or the block of n activations, from 1",
    "objective": "the objective after the round; empty in a private run",
    "consensus_residual": "how far apart the nodes' iterates are, as in result.json",
    "max_violation": "zones: the largest violation of a limit, p.u.",
    "noise_l1": "sum over the nodes of |noise|_1 of the round's answers as drawn; empty in a private run",
    "noise_l1_expected": "the expectation of that sum, a public number",
    "messages": "messages of the round that carried an iterate",
    "bytes": "their payloads, bytes",
    "dual_residual": "zones at least cost: how far the prices of the zones are apart, |rho (zbar - w) sqrt(n)|",
    "disagreement_mw": "zones at least cost: the most by which two zones differ in a flow of a line between them, MW "
    "or MVAr",
    "factor": "zones at least cost: the common factor of the penalties",
    "test_error": "data problems with `problem.test`: the error of the common model on these public rows, as in "
    "result.json",
    "test_error_<node>": "the error of the node's own model on them",
    "epsilon_<node>": "the node's epsilon of this run up to and with the round",
}
#: columns of text in the other tables
TEXT = (*rundir.WORDS, "node", "quantity", "element", "unit")
COUNTS = ("round", "messages", "bytes")  #: columns of whole numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Section(DocumentView):
    """A section of result.json: its keys are attributes, and it is the mapping that stands in the file."""

    def __getitem__(self, key: str) -> Any:
        if key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        return len(self.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bound(Section):
    """A bound on the privacy loss."""

    epsilon: float | None  #: null: no epsilon bounds it
    delta: float  #: 0 under pure accounting


@dataclass(frozen=True, kw_only=True, eq=False)
class Level(Section):
    """One level of a run that is masked in two."""

    messages: int  #: messages that carried an iterate
    bytes: int  #: their payloads, bytes
    seconds: float | None = None  #: that its ends took to answer in one process; null: they had each its own


@dataclass(frozen=True, kw_only=True, eq=False)
class Account(Section):
    """One node's account; null throughout if the run claims no privacy."""

    claimed: Bound | None  #: the run's promise to this node
    spent: Bound | None  #: what its answers in this run cost
    answers: int | None = None  #: how many noisy answers its gate gave in this run
    cap: int | None = None  #: the most that it may give, for which its noise was calibrated
    ledger: Bound | None  #: what its ledger has spent over all runs
    left: float | None  #: epsilon left of its budget; null without a budget
    at_site: Bound | None = None  #: masked in two levels: its ledger's shares to its own site's coordinator
    alone: Bound | None = None  #: and to everybody else together


@dataclass(frozen=True, kw_only=True, eq=False)
class Privacy(Section):
    """What the run claims, what it spent, and whether the claim holds."""

    claimed: Bound | None  #: total of each node over the run; null if the run claims no privacy
    spent: Bound | None  #: of the node that spent most
    adjacency: Document | None  #: the neighbouring relation, as in the scenario
    mechanism: str | None  #: laplace or gaussian
    accountant: str | None  #: pure-basic, pure-optimal, zcdp or gdp
    sampler: str | None  #: how the noise was drawn
    answers: int | None  #: the most noisy answers that a node may give in the run
    capped: list[str] | None  #: nodes that had given all of them before the run ended
    per_node: dict[str, Account]  #: each node's account
    upheld: (
        bool | Literal["not private"]
    )  #: whether the claim holds; "not private": variant none, a seed, or `run.truth`
    findings: list[str]  #: why a published variant's claim does not hold
    ledgers: Literal["kept", "run"]  #: kept: they count over runs (--state); run: of this run only


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearness(Section):
    """How far the answer can be from the optimum of rows: what its released answers prove of it."""

    gradient: float | None  #: a (sub)gradient of (1/n) sum_i f_i + r at the answer is no larger
    least_gradient: float | None  #: it is no smaller
    wanted: float | None  #: `gradient` of an answer that is solved is no larger
    relative_error: float | None  #: |x - x*|/|x*| is no larger; null if the problem is not known to be strongly convex
    gap: float | None  #: the objective, per node, is no farther above its optimum; null if nothing is known
    confidence: float  #: of these bounds; 1: computed from raw data, of a run that hides nothing
    clipped: bool  #: the optimum is that of the clipped problem: clipping may change records' gradients
    convex: bool  #: if not, it is a stationary point


@dataclass(frozen=True, kw_only=True, eq=False)
class Quality(Section):
    """Whether the answer is one, from released values alone.

    Sizes and residuals are in the problem's own unit: sqrt(n) |x| of data, |z| over shared entries of zones.
    """

    verdict: str  #: solved, agreed (optimality was not tested), noise-limited, not-converged or diverged
    residual_relative: float | None  #: consensus residual over the answer's size
    step_ratio: float | None  #: the step over its public bound
    noise_relative: float | None  #: how much of the size the answers' noise explains
    size: float | None  #: |x|, or |z| of zones
    largest: float | None  #: no answer of the problem is larger; null if no bound is known
    #: `residual_relative` before the rounds of averaging after the last answer, which make nodes agree whatever they
    #: have
    before_averaging: float | None = None
    bound: Nearness | None = None  #: of rows: how far the answer can be from the optimum; null if that was not tested
    gap: float | None = None  #: zones at least cost: as `gap` of the run


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk(Section):
    """How the token went."""

    kind: str  #: random, given, hamiltonian or closed-walk
    cycle: list[int] | None  #: the nodes of the cycle, in order, if the walk repeats one


@dataclass(frozen=True, kw_only=True, eq=False)
class Periods(Section):
    """The periods that were planned together."""

    periods: int  #: T
    hours: float  #: of one period


@dataclass(frozen=True, kw_only=True, eq=False)
class Ac(Section):
    """The dispatch that satisfies the AC power flow equations, found from the relaxation's; at the same loads."""

    status: str  #: solved; or why there is none
    objective: float | None = None  #: $/h: generation and lost load
    iterations: int | None = None  #: of Ipopt
    generation_mw: float | None = None  #: MW generated
    load_mw: float | None = None  #: the loads it is for, MW
    served_mw: float | None = None  #: what of the loads is served, MW
    unserved_mw: float | None = None  #: what is not, MW
    spilled_mw: float | None = None  #: power that nobody takes, MW
    slack_mvar: float | None = None  #: reactive power not served or not taken, MVAr
    losses_mw: float | list[float | None] | None = None  #: MW lost in the lines
    failed: list[int] | None = None  #: a horizon: the periods, from 1, that have none; these keep the relaxation's


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut(Section):
    """The rows of `problem.test`. They are public: nothing protects them."""

    file: str  #: their file's name
    rows: int  #: how many they are
    #: what an error on them is: the share of rows that are wrong, or of least squares the root mean squared error
    measure: str
    trivial: float  #: the error of the best model that looks at no row


@dataclass(kw_only=True)
class Summary:
    """result.json. What does not apply to a run, or what a private run does not reveal, is null (None)."""

    name: str  #: the scenario's name
    algorithm: str  #: its `algorithm.name`
    variant: str  #: guarded, published or none
    transport: str  #: memory or mqtt
    broker: str  #: which broker carried the messages
    nodes: int  #: how many took part
    lost: list[str] | None = None  #: token: nodes lost for good, around which the walk went on
    #: token: the nodes whose data the problem that was solved is about; of one that was lost, a recount takes them out
    solved: list[str] | None = None
    #: token: those of them of which it has no more than the last linear model: their cap was reached, or they were lost
    #: and the walk ended before its recount
    frozen: list[str] | None = None
    walk: Walk | None = None  #: token: how it went
    rounds_done: int  #: rounds, or activations of a run with a token
    finish: dict[str, int] | None = None  #: neighbours: rounds of averaging after the last answer, by their kind
    stopped_because: str  #: rounds (all were done), or tolerance (`run.stop` was met)
    quality: Quality  #: the verdict on the answer
    test: HeldOut | None = None  #: data problems: the public rows that models are tested on, if there are any
    test_error: float | None = None  #: of the common model on them; of node i's own model: test_error_<node>
    objective: float | None = (
        None  #: at the answer; null in a private run, but for zones in mode input, at the noisy loads
    )
    optimality_gap: float | None = None  #: objective minus the optimum; null as the objective is
    relative_error: float | None = None  #: |x - x*| / |x*|, data problems; null in a private run
    consensus_residual: float | None = None  #: sqrt(sum_i |x_i - mean x|^2); zones: sqrt(sum_p |w_p - z_p|^2), p.u.
    max_violation: float | None = None  #: zones: the largest violation of a limit, p.u.
    horizon: Periods | None = None  #: zones over a horizon: its periods; then powers and prices are lists over them
    #: zones: MW generated; of the noisy loads in a private run of mode input
    generation_mw: float | list[float] | None = None
    load_mw: float | list[float] | None = None  #: zones: the loads it is for, MW
    served_mw: float | list[float] | None = None  #: zones: what of the loads is served, MW
    unserved_mw: float | list[float] | None = None  #: zones: what is not, MW
    spilled_mw: float | list[float] | None = None  #: zones: power that nobody takes, MW
    charge_mw: list[float] | None = None  #: a horizon: what storage takes, MW
    discharge_mw: list[float] | None = None  #: a horizon: what storage gives, MW
    price_min: list[float] | None = None  #: a horizon: the lowest price of a bus, $/MWh
    price_max: list[float] | None = None  #: a horizon: the highest price of a bus, $/MWh
    load_noise_mw: float | None = None  #: zones at least cost: standard deviation of the noise in the loads' sum, MW
    #: zones at least cost: reactive power not served or not taken, MVAr
    slack_mvar: float | list[float] | None = None
    #: zones at least cost: $/h (a horizon: $), proven: no dispatch of these loads costs less
    bound: float | None = None
    #: zones at least cost: (cost - bound)/cost, of the AC dispatch if there is one, else of the relaxation, whose cost
    #: is that of zones that agree only nearly, so that its distance is said; null where no bound holds
    gap: float | None = None
    disagreement_mw: float | None = None  #: zones at least cost: the most by which two zones differ in a tie flow, MW
    #: zones at least cost: $/MWh of each bus, what one more MW of load there costs in the dispatch of the tables
    prices: dict[str, float | list[float]] | None = None
    prices_relaxed: dict[str, float] | None = None  #: zones at least cost: the same in the relaxation
    ac: Ac | None = None  #: zones at least cost: the AC recovery
    messages: int  #: messages that carried an iterate
    bytes: int  #: their payloads, bytes
    in_sites: Level | None = None  #: of two levels: of these what went between sites and their devices
    between_sites: Level | None = None  #: and between the fleet's coordinator and the sites
    wall_s: float  #: seconds from the start to the answer
    privacy: Privacy  #: claimed, spent, and whether the claim is upheld
    notes: list[str]  #: what was changed in the data on reading them
    versions: dict[str, str]  #: what computed this run


class Result(Summary):
    """A finished run: the fields of result.json as attributes, and the arrays of the other files.

    summary: result.json as a mapping. history: the columns of history.csv, None for an empty cell. solution: the arrays
    of solution.npz. setpoints: the rows of setpoints.csv (node, quantity, element, value, unit, number, bus, from, to,
    source). trajectory, transcript: None unless `run.record` asks for them. path: the run directory, if there is one.
    tables: zones at least cost: the columns and rows of generation.csv, balance.csv, lines.csv, buses.csv and, with dc
    lines, dclines.csv, by name. case: zones: the network without its loads; None if its file is gone.
    """

    def __init__(
        self,
        summary: DocumentView,
        history: dict[str, list[float | int | None]],
        solution: dict[str, np.ndarray],
        setpoints: list[tuple[object, ...]],
        trajectory: dict[str, np.ndarray] | None = None,
        transcript: list[Document] | None = None,
        path: Path | None = None,
        tables: Mapping[str, tuple[Sequence[str], list[tuple[object, ...]]]] | None = None,
        case: Case | None = None,
    ) -> None:
        """Raises msgspec.ValidationError if `summary` is not what result.json holds."""
        self.summary: Document = json.loads(json.dumps(summary))
        super().__init__(**vars(msgspec.convert(self.summary, Summary)))
        self.history, self.solution, self.setpoints = history, solution, setpoints
        self.trajectory, self.transcript, self.path = trajectory, transcript, path
        self.tables, self.case = dict(tables or {}), case

    @classmethod
    def load(cls, run_dir: str | Path) -> Result:
        """The run in a run directory. Raises InputError, one line, if it is incomplete or a file is not one of a run.

        What a private run does not reveal is None, whatever its files hold.
        """
        run = rundir.read(Path(run_dir))
        written = rundir.mapping(run.path / "result.json", json.loads)
        empty = np.full(len(run.history["round"]), np.nan)
        history = {name: _cells(run.history.get(name, empty), name) for name in run.columns}
        points = [astuple(p) for p in run.setpoints]
        trajectory = run.path / "trajectory.npz"
        try:
            return cls(
                {key: run.result.get(key) for key in written},
                history,
                dict(run.solution),
                points,
                rundir.arrays(trajectory) if trajectory.is_file() else None,
                rundir.transcript(run.path / "transcript.jsonl"),
                run.path,
                {
                    name: (rundir.table_columns(run.result)[name], [_row(row) for row in rows])
                    for name, rows in run.tables.items()
                },
                run.case,
            )
        except msgspec.ValidationError as error:
            raise InputError(
                f"{run.path / 'result.json'}: {error}, expected a file as `hushgrid run` writes it"
            ) from None

    @property
    def epsilon(self) -> dict[str, float | None]:
        """What each node has spent in this run; None if nothing is claimed, or no epsilon bounds it."""
        return {
            name: account.spent.epsilon if account.spent else None for name, account in self.privacy.per_node.items()
        }

    def frame(self, table: str = "history") -> DataFrame:
        """A table of the run directory as a DataFrame, NaN for an empty cell: history, setpoints or one of `tables`.

        Over a horizon one of `tables` is indexed by period, from 1, and element.

        Raises InputError, which lists the tables, if the run has none of this name, and without pandas.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            raise InputError("frame: found no pandas, expected it installed: pip install pandas") from None
        if table == "history":
            return DataFrame(
                {name: np.array(cells, int if name in COUNTS else float) for name, cells in self.history.items()}
            )
        tables = {"setpoints": (("node", *SETPOINTS), self.setpoints), **self.tables}
        if table not in tables:
            raise InputError(f"frame: found {table!r}, expected one of history, {', '.join(tables)}")
        columns, rows = tables[table]
        data = {name: [row[k] for row in rows] for k, name in enumerate(columns)}
        frame = DataFrame({name: column if name in TEXT else _numbers(column) for name, column in data.items()})
        return frame.set_index(list(columns[:2])) if columns[0] == "period" else frame

    def to_pandapower(self, period: int | None = None) -> pandapowerNet:
        """The dispatch as a pandapower network whose `res_*` tables are filled by pandapower's own power flow.

        period: over a horizon which one, from 1. Storage is then in `net.storage`, and `net.profiles` has frames of
        every period, from 1, such as `load_p_mw`: what pandapower's own time series take (DFData, ConstControl).

        Generators and voltages are set as dispatched. A bus's load is what the dispatch serves there, at the loads that
        the gates have released; a bus's index is its number. If the dispatch is that of the relaxation (`source`), the
        power flow of these set-points differs from it. Raises InputError if the run has no dispatch, or none of this
        period, its case is gone, pandapower is not installed, or its power flow finds no solution.
        """
        if "generation" not in self.tables:
            raise InputError("to_pandapower: found no dispatch, expected a run over zones with problem.objective: cost")
        if self.case is None:
            raise InputError(
                f"to_pandapower: {self.path}: found no case, expected its file where the scenario names it"
            )
        periods = self.horizon.periods if self.horizon else None
        if (period is None) != (periods is None) or not (period is None or 1 <= period <= (periods or 1)):
            expected = f"1 to {periods}" if periods else "none: the run is no horizon"
            raise InputError(f"period: found {period}, expected {expected}")
        from hushgrid.grid_cases.pandapower import solved

        wanted = [name for name in self.tables if name in ("generation", "buses", "lines", "storage")]
        tables: dict[str, Sequence[DocumentView]] = {}
        for name in wanted:
            columns, rows = self.tables[name]
            tables[name] = [dict(zip(columns, row, strict=True)) for row in rows]
        return solved(self.case, tables, period)

    def plot(self, *columns: str, axes: Axes | None = None) -> Axes:
        """Columns of the history [consensus_residual] over the rounds, drawn into `axes` or into a new figure.

        The scale is logarithmic if every value is positive. Raises InputError for a column that is not there or is
        empty (a private run's objective is), and without matplotlib.
        """
        names = columns or ("consensus_residual",)
        for name in names:
            if name not in self.history:
                raise InputError(f"plot: found no column {name!r}, expected one of {', '.join(self.history)}")
            if all(value is None for value in self.history[name]):
                why = (
                    " (a private run does not reveal it)" if self.privacy.upheld is True and name in rundir.RAW else ""
                )
                raise InputError(f"plot: {name}: found no value{why}, expected a column with values")
        try:
            from matplotlib import pyplot
        except ImportError:
            raise InputError(
                "plot: found no matplotlib, expected it installed: pip install 'hushgrid[laptop]'"
            ) from None
        if axes is None:
            axes = pyplot.figure(figsize=(6.0, 3.4), layout="constrained").add_subplot()
        values = {name: np.array(self.history[name], float) for name in names}
        for name, curve in values.items():
            axes.plot(np.array(self.history["round"]), curve, label=name.replace("_", " "))
        if all(np.all(curve[np.isfinite(curve)] > 0) for curve in values.values()):
            axes.set_yscale("log")
        axes.set_xlabel("round" if self.walk is None else f"block of {self.nodes} activations")
        axes.set_title(f"{self.name}: {self.algorithm}")
        axes.legend()
        return axes

    def _repr_html_(self) -> str:
        """A small table for notebooks: nothing that is not in result.json."""
        private = self.privacy.upheld is True
        stand = "upheld" if private else "not upheld" if self.privacy.upheld is False else "not private"
        withheld = "withheld: it would be computed from raw data" if private else None
        rows = {
            "algorithm": f"{self.algorithm} ({self.variant}), {self.nodes} nodes, {self.transport}",
            "rounds"
            if self.walk is None
            else "activations": f"{self.rounds_done}, stopped because: {self.stopped_because}",
            "quality": self.quality.verdict,
            "consensus residual": _figure(self.consensus_residual),
            "objective": _figure(self.objective) or withheld,
            "relative error": _figure(self.relative_error),
            "privacy": stand + (f", claimed {_bound(self.privacy.claimed)}" if self.privacy.claimed else ""),
            "spent": _bound(self.privacy.spent) if self.privacy.spent else None,
            "messages": f"{self.messages:,}",
        }
        cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items() if v)
        return f"<table><caption>{escape(self.name)}</caption>{cells}</table>"

    def __repr__(self) -> str:
        return f"Result({self.name}: {self.algorithm}, {self.rounds_done} rounds, {self.quality.verdict})"


def _cells(column: rundir.Array, name: str) -> list[float | int | None]:
    """A column of history.csv as it was before it was written."""
    return [None if np.isnan(v) else int(v) if name in COUNTS else v for v in column.tolist()]


def _numbers(column: list[Any]) -> list[float | int]:
    """A column of a table, NaN for an empty cell; whole numbers if all of it is."""
    numbers = [np.nan if cell in ("", None) else float(cell) for cell in column]
    return [int(number) for number in numbers] if all(isinstance(cell, int) for cell in column) else numbers


def _row(row: DocumentView) -> tuple[object, ...]:
    """A row of a table as it was before it was written."""
    return tuple("" if isinstance(v, float) and np.isnan(v) else v for v in row.values())


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _bound(bound: Bound) -> str:
    epsilon = "unbounded" if bound.epsilon is None else f"{bound.epsilon:.6g}"
    return f"epsilon {epsilon}" + (f", delta {bound.delta:g}" if bound.delta else "")
