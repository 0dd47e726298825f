"""What a benchmark says: rows of medians beside a rival or a limit measured in the same run, as text and as JSON."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from hushgrid.broker.simulation.problems.base import versions
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document

#: The zones of the figures: the published split is not available, and this one is used wherever figures are compared.
ZONES: dict[str, list[list[int]]] = {
    "case14": [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]],
    "case118": [
        [*range(1, 33), *range(113, 116), 117],
        [*range(33, 68)],
        [*range(68, 113), 116, 118],
    ],
}


class Row(Struct, frozen=True, kw_only=True):
    """One figure: the median of `samples` measurements, its spread, and what it is to be judged by."""

    what: str
    unit: str
    value: float
    p10: float | None = None
    p90: float | None = None
    samples: int = 1
    rival: str | None = None  #: what `ratio` is against
    ratio: float | None = None  #: this row's value over the rival's
    target: str | None = None
    met: bool | None = None


class Table(Struct, frozen=True, kw_only=True):
    name: str
    summary: str = field(name="about")
    rows: list[Row]


def row(what: str, unit: str, values: Sequence[float], *, rival: Row | None = None, **facts: Any) -> Row:
    """The median of `values` with p10 and p90, and its ratio to a rival row's."""
    p10, median, p90 = (float(v) for v in np.percentile(values, [10, 50, 90]))
    if rival is not None:
        facts = {"rival": rival.what, "ratio": median / rival.value} | facts
    return Row(what=what, unit=unit, value=median, p10=p10, p90=p90, samples=len(values), **facts)


def against(row: Row, limit: float, quantity: str = "value", never: float | None = None) -> Row:
    """The row with its target, value (or ratio) at most `limit`. `never`: what it must not pass on any day, in
    words.
    """
    measured = row.ratio if quantity == "ratio" else row.value
    unit = "x" if quantity == "ratio" else f" {row.unit}"
    target = f"<= {limit:g}{unit}".rstrip() + (f", never above {never:g}{unit}" if never else "")
    return msgspec.structs.replace(row, target=target, met=measured is not None and measured <= limit)


def timed(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls, after one that is not counted."""
    call()
    taken = []
    gc.disable()
    try:
        for _ in range(repeats):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return taken


def in_each_mode(module: str) -> list[Row]:
    """What `python -m module` prints, rows as JSON, in a process for each mode of the kernels: numba where it is
    installed.

    Raises InputError with the last line of its complaint.
    """
    rows: list[Row] = []
    for mode in ("numba", "numpy") if find_spec("numba") else ("numpy",):
        ended = subprocess.run(
            [sys.executable, "-m", module],
            env=os.environ | {"HUSHGRID_KERNELS": mode},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if ended.returncode:
            complaint = ended.stderr.decode(errors="replace").strip().splitlines()[-1]
            raise InputError(f"bench {module.rpartition('.')[2]}: {complaint}")
        rows += msgspec.json.decode(ended.stdout, type=list[Row])
    return rows


def print_rows(measured: Callable[[], list[Row]]) -> None:
    """The other end of `in_each_mode`."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(measured()))
    except InputError as error:
        sys.exit(str(error))


def machine() -> Document:
    """Where it was measured."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": model or platform.processor(),
        "cores": cores,
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
    }


def as_json(tables: Iterable[Table]) -> str:
    """All of it: tables, versions, machine."""
    report = {
        "machine": machine(),
        "versions": versions(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "tables": [msgspec.to_builtins(t) for t in tables],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def footer() -> str:
    """Machine and versions in two lines."""
    host = machine()
    return f"{host['processor']}, {host['cores']} cores, load {host['load']}, {host['system']}\n" + ", ".join(
        f"{k} {v}" for k, v in versions().items()
    )


def as_text(table: Table) -> str:
    """A table for a terminal."""
    header = ("", "median", "p10", "p90", "n", "", "ratio", "to", "target", "")
    lines = [header, *(_cells(r) for r in table.rows)]
    used = [c for c in range(len(header)) if any(line[c] for line in lines[1:])]
    width = {c: max(len(line[c]) for line in lines) for c in used}
    numbers = {1, 2, 3, 4, 6}
    body = [
        "  ".join(line[c].rjust(width[c]) if c in numbers else line[c].ljust(width[c]) for c in used).rstrip()
        for line in lines
    ]
    return "\n".join([f"{table.name}: {table.summary}", *(f"  {line}" for line in body)])


def _cells(r: Row) -> tuple[str, ...]:
    verdict = "" if r.met is None else "met" if r.met else "not met"
    ratio = "" if r.ratio is None else f"{r.ratio:.2f}x"
    return (
        r.what,
        _number(r.value),
        _number(r.p10),
        _number(r.p90),
        str(r.samples) if r.samples > 1 else "",
        r.unit,
        ratio,
        r.rival or "",
        r.target or "",
        verdict,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.6g}"
