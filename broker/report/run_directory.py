"""A run directory read back: the files a report is made of, checked; one line says what is missing or wrong."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from hushgrid.grid_cases import dispatch, load
from hushgrid.grid_cases.case import Case
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.algorithms.base import Algorithm, Pattern, walk_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import AnyArray, Document, DocumentView
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.power_flow import day
from hushgrid.node.problems.registry import TAGS

Array = NDArray[np.float64]
FILES = ("result.json", "history.csv", "solution.npz", "setpoints.csv", "scenario.yaml")
COLUMNS = ("round", "consensus_residual", "messages", "bytes")  # without these a history says nothing
POWER = ("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw")
# Computed from raw data or from the noise itself. Never read from a run whose privacy claim is upheld, but for what
# stands in result.json at the noisy loads of mode input, a gate's answer.
RAW = ("objective", "optimality_gap", "relative_error", "noise_l1", *POWER)
OF_ANSWERS = ("objective", "optimality_gap", *POWER)
#: The tables that a run at least cost has beside these files, each a CSV file of these columns.
TABLES = {
    "generation": dispatch.GENERATION,
    "balance": dispatch.BALANCE,
    "lines": dispatch.LINES,
    "buses": dispatch.BUSES,
}
DC = {"dclines": dispatch.DC_LINES}  #: and one more if the case has dc lines
#: Over a horizon every table has a first column `period`, a balance storage's two, and storage has a table.
STORAGE = {"storage": day.STORAGE, "contingencies": day.CONTINGENCIES}
SUMS = {"sum": ("entry", "value", "sd")}  #: the same of a run that has added up a statistic
WORDS = (
    "entry",
    "storage",
    "zone",
    "zones",
    "source",
    "tie",
    "outcome",
)  #: their columns of text; numbers of generators, branches and buses are whole
WHOLE = ("period", "gen", "bus", "branch", "dcline", "from", "to")
SOURCES = ("ac", "relaxed")
LATER = ("price_relaxed",)  #: columns that tables of 0.1.0 have not


@dataclass(frozen=True)
class Setpoint:
    """One row of setpoints.csv. unit: MW, MVAr or p.u.; number: as the case file counts, from 1, or the bus number."""

    node: str
    quantity: str
    element: str
    value: float
    unit: str
    number: str = ""
    bus: str = ""
    from_bus: str = ""
    to_bus: str = ""
    source: str = ""  #: relaxed, or ac


@dataclass(frozen=True)
class Run:
    """What a run left. columns: all of history.csv. history: column -> (rounds,), NaN where empty. solution: as saved.

    Of a run whose privacy claim is upheld, `result` and `history` come without what is computed from raw data (RAW).
    """

    path: Path
    result: DocumentView
    scenario: DocumentView
    scenario_text: str
    algorithm: Algorithm
    columns: tuple[str, ...]
    history: Mapping[str, Array]
    solution: Mapping[str, AnyArray]
    setpoints: tuple[Setpoint, ...]
    tables: Mapping[str, tuple[DocumentView, ...]]  #: rows by the name of the table: text, int, or float (NaN: empty)
    period: int | None = None  #: over a horizon the one to be shown, from 1; None: that of the highest price

    @property
    def kind(self) -> Kind | None:
        """Of its problem; None if this program does not know it."""
        return TAGS.get(str((self.scenario.get("problem") or {}).get("kind")))

    @property
    def zones(self) -> bool:
        """Whether it is a run over the zones of a case; else over nodes with rows of data."""
        return self.kind is not None and not self.kind.records

    @property
    def least_cost(self) -> bool:
        """Whether it is a run over zones at least cost; else, over zones, one of least load shedding."""
        return self.zones and (self.scenario.get("problem") or {}).get("objective") == "cost"

    @property
    def periods(self) -> int:
        """How many were planned together; 1 of a snapshot."""
        return int((self.result.get("horizon") or {}).get("periods", 1))

    @property
    def sums(self) -> bool:
        """Whether it is a run that has added up a statistic of records."""
        return self.algorithm.asks() == "statistic"

    @property
    def privacy(self) -> DocumentView:
        """The scenario's section; empty without one."""
        return self.scenario.get("privacy") or {}

    @property
    def mode(self) -> str:
        """What noise stands on: `privacy.mode`."""
        return str(self.privacy.get("mode", "objective"))

    @property
    def pattern(self) -> Pattern:
        """Who spoke when."""
        return self.algorithm.pattern

    @property
    def walks(self) -> bool:
        """Whether a token went round: a row of the history is then a block of activations, else a round."""
        return walk_of(self.algorithm) is not None

    @property
    def noisy_loads(self) -> bool:
        """Whether what is told of loads is told of the gate's own, mode input."""
        return self.mode == "input"

    @property
    def case(self) -> Case | None:
        """The network of its zones without their loads; None if there is none, or its file is gone."""
        try:
            return self.load_case().without_loads() if self.zones else None
        except InputError:
            return None

    def load_case(self) -> Case:
        """The case of its zones, as modelled. Raises InputError if its file is gone."""
        name, ignore = (self.scenario["problem"].get(key) for key in ("case", "ignore"))
        kept = self.path / str(name)  # of a case that was made in Python
        return load(kept if kept.suffix == ".npz" else str(name)).without(ignore or ())

    def nodes(self) -> tuple[str, ...]:
        """The nodes' names: those with a solution, else those with a ledger column."""
        keys = [key for key in self.solution if not key.startswith("z_average_")]
        saved = [key[2:] for key in keys if key[:2] in ("z_", "x_")]
        spent = [key.removeprefix("epsilon_") for key in self.history if key.startswith("epsilon_")]
        return tuple(saved or spent)


def read(run_dir: Path) -> Run:
    """The run in `run_dir`. Raises InputError, one line: the file, what was found, what was expected."""
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: found no such directory, expected a run directory")
    missing = [name for name in FILES if not (run_dir / name).is_file()]
    if missing:
        raise InputError(f"{run_dir}: found no {', '.join(missing)}, expected a complete run directory")
    result = mapping(run_dir / "result.json", json.loads)
    scenario = mapping(run_dir / "scenario.yaml", yaml.safe_load)
    privacy = result.get("privacy")
    if privacy is not None and not isinstance(privacy, Mapping):
        raise InputError(f"{run_dir / 'result.json'}: privacy: found {privacy!r}, expected a mapping or null")
    for key in ("problem", "privacy", "algorithm", "run", "network"):
        if scenario.get(key) is not None and not isinstance(scenario[key], Mapping):
            raise InputError(f"{run_dir / 'scenario.yaml'}: {key}: found {scenario[key]!r}, expected a mapping")
    history = _history(run_dir / "history.csv")
    columns = tuple(history)
    if (privacy or {}).get("upheld") is True:
        released = OF_ANSWERS if (scenario.get("privacy") or {}).get("mode") == "input" else ()
        result = {key: value for key, value in result.items() if key not in RAW or key in released}
        cost = (scenario.get("problem") or {}).get(
            "objective"
        ) == "cost"  # each round's objective is one at the answers
        history = {k: v for k, v in history.items() if k not in RAW or (cost and k == "objective" and k in released)}
    return Run(
        path=run_dir,
        result=result,
        scenario=scenario,
        algorithm=_algorithm(run_dir / "scenario.yaml", scenario.get("algorithm")),
        scenario_text=(run_dir / "scenario.yaml").read_text(encoding="utf-8"),
        columns=columns,
        history=history,
        solution=_solution(run_dir / "solution.npz"),
        setpoints=_setpoints(run_dir / "setpoints.csv"),
        tables=_tables(run_dir, table_columns(result)),
    )


def table_columns(result: DocumentView) -> dict[str, tuple[str, ...]]:
    """The columns of every table that a run with this result.json can have."""
    known = TABLES | DC
    if result.get("horizon"):
        known = {name: ("period", *columns) for name, columns in known.items()}
        known["balance"] = (*known["balance"], *day.FLOWS)
        known |= STORAGE
    return known | SUMS


def _algorithm(path: Path, section: object) -> Algorithm:
    registry.offer_installed()
    try:
        registry.is_known(section.get("name") if isinstance(section, Mapping) else None)
        algorithm: Algorithm = registry.algorithm_from(section)
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(f"{path}: algorithm: {error}, expected a section as `hushgrid run` writes it") from None
    return algorithm


def mapping(path: Path, parse: Callable[[str], object]) -> DocumentView:
    """A file that holds one mapping. Raises InputError, one line."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: found {error}, expected a file as `hushgrid run` writes it") from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: found a {type(content).__name__}, expected a mapping")
    return content


def _rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their line numbers."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True, restkey="")
            header = reader.fieldnames or []
            absent = [name for name in needed if name not in header]
            if absent:
                raise InputError(f"{path}:1: found no column {', '.join(absent)}, expected {', '.join(needed)}")
            rows = [(reader.line_num, row) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: found {error}, expected comma-separated UTF-8 text") from None
    for line, row in rows:
        if "" in row or None in row.values():
            raise InputError(f"{path}:{line}: found a row of another length, expected {len(header)} cells")
    return rows


def _number(text: str, path: Path, line: int, column: str) -> float:
    if not text.strip():
        return math.nan
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{path}:{line}: {column}: found {text!r}, expected a number or nothing") from None


def _history(path: Path) -> dict[str, Array]:
    rows = _rows(path, COLUMNS)
    names = list(rows[0][1]) if rows else list(COLUMNS)
    return {name: np.array([_number(row[name], path, line, name) for line, row in rows]) for name in names}


def _setpoints(path: Path) -> tuple[Setpoint, ...]:
    needed = ("node", "quantity", "element", "value", "unit")
    return tuple(
        Setpoint(
            node=row["node"],
            quantity=row["quantity"],
            element=row["element"],
            value=_number(row["value"], path, line, "value"),
            unit=row["unit"],
            number=row.get("number", ""),
            bus=row.get("bus", ""),
            from_bus=row.get("from", ""),
            to_bus=row.get("to", ""),
            source=row.get("source", ""),
        )
        for line, row in _rows(path, needed)
    )


def _tables(run_dir: Path, columns_of: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[Document, ...]]:
    """The tables of a run at least cost, all of them or none; of a sum."""
    if (run_dir / "sum.csv").is_file():
        return {"sum": _table(run_dir / "sum.csv", SUMS["sum"])}
    there = [name for name in TABLES if (run_dir / f"{name}.csv").is_file()]
    if absent := [f"{name}.csv" for name in TABLES if there and name not in there]:
        raise InputError(f"{run_dir}: found no {', '.join(absent)}, expected it beside {there[0]}.csv")
    more = [name for name in (*DC, *STORAGE) if there and name in columns_of and (run_dir / f"{name}.csv").is_file()]
    tables = {name: _table(run_dir / f"{name}.csv", columns_of[name]) for name in (*there, *more)}
    known = {row["bus"] for row in tables.get("buses", ())}
    ends = [(name, end) for name in ("lines", "dclines") for end in ("from", "to")]
    for name, column in (("generation", "bus"), ("storage", "bus"), *ends):
        for k, row in enumerate(tables.get(name, ())):
            if row[column] not in known:
                where = f"{run_dir / name}.csv:{k + 2}: {column}"
                raise InputError(f"{where}: found {row[column]}, expected a bus of buses.csv")
    return tables


def _table(path: Path, columns: tuple[str, ...]) -> tuple[Document, ...]:
    rows = []
    for line, row in _rows(path, tuple(name for name in columns if name not in LATER)):
        cells: Document = {}
        for name in columns:
            if name not in row:
                cells[name] = math.nan
            elif name in WORDS:
                cells[name] = row[name]
            elif name not in WHOLE:
                cells[name] = _number(row[name], path, line, name)
            elif row[name].strip().isdecimal():
                cells[name] = int(row[name])
            else:
                raise InputError(f"{path}:{line}: {name}: found {row[name]!r}, expected a whole number")
        if "source" in columns and cells["source"] not in SOURCES:
            raise InputError(f"{path}:{line}: source: found {cells['source']!r}, expected {' or '.join(SOURCES)}")
        if cells.get("tie", "no") not in ("yes", "no"):
            raise InputError(f"{path}:{line}: tie: found {cells['tie']!r}, expected yes or no")
        rows.append(cells)
    return tuple(rows)


def arrays(path: Path) -> dict[str, AnyArray]:
    """The arrays of a .npz file by name. Raises InputError, one line."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}
    except Exception as error:  # zipfile, zlib, numpy and struct each raise their own kind
        raise InputError(f"{path}: found {error}, expected arrays as numpy.savez writes them") from None


def transcript(path: Path) -> list[Document] | None:
    """The lines of transcript.jsonl, None if there is no such file. Raises InputError, one line."""
    if not path.is_file():
        return None
    lines: list[Document] = []
    with path.open("rb") as file:
        for k, line in enumerate(file, 1):
            try:
                lines.append(json.loads(line))
            except (ValueError, RecursionError):
                raise InputError(f"{path}:{k}: found no JSON, expected a JSON object a line") from None
    return lines


def _solution(path: Path) -> dict[str, AnyArray]:
    saved = arrays(path)
    for name in saved:
        if name.startswith("keys_") and name != "keys_w":
            values = saved.get("z_" + name.removeprefix("keys_"))
            if values is not None and values.shape != saved[name].shape:
                raise InputError(f"{path}: {name}: found shape {saved[name].shape}, expected {values.shape}")
    return saved
