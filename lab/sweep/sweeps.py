"""`hushgrid sweep`: a scenario at every point of a grid, under the same seeds, a row a run.

Noise is keyed by seed, node and answer, so runs of the same seed share their noise over the whole grid, up to its
scale: what differs between two points under one seed is the points.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.broker.simulation.inputs import read_scenario
from hushgrid.broker.simulation.problems.cache import current_cache, digest
from hushgrid.broker.simulation.problems.records import of_rows, read
from hushgrid.broker.simulation.progress import Progress
from hushgrid.kernels.algorithms.registry import offer_installed, plug
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.comparison.rows import FIGURES, STATUS, cells, frame, needed
from hushgrid.lab.sweep.grid import Axis, Point, axis, listed, points, seeded
from hushgrid.lab.sweep.record import Record
from hushgrid.node.durable import write_file
from hushgrid.node.problems.records.data import Loaded
from hushgrid.node.schema.yaml_file import lay

if TYPE_CHECKING:
    from pandas import DataFrame

    from hushgrid.lab.sweep.workers import Engine, Measure

SHARED = 1 << 30  #: bytes of rows that are sent to the workers; they read what is more themselves


def sweep(
    scenario: DocumentView | str | Path,
    over: Mapping[str, Iterable[object]] | Sequence[DocumentView],
    seeds: int | Iterable[int] = 20,
    *,
    set: DocumentView | None = None,
    plugins: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    measure: Measure | None = None,
    progress: Progress | None = None,
    report: bool = True,
) -> DataFrame:
    """Run a scenario at every combination of the values in `over`, under every seed; a frame of a row a run.

    scenario: the name of one that comes with the program, a path, or a mapping as in the YAML file. plugins: modules of
    your own whose algorithms may run. over: dotted key -> its values (whole sections too); or the points
    themselves, each dotted key -> its value, if they are not every combination. seeds: how
    many (0, 1, ...), or which. set: dotted key -> a value for all runs. out: a new directory for runs.csv,
    runs.parquet, medians.csv and comparison.html; with `resume` one that an earlier call has begun. workers: so many
    processes of this machine [this process alone]. dask: a scheduler's address in their place. measure: further
    columns, name -> a function of a Result. report: False leaves runs.csv alone in `out`. Raises InputError or Stopped,
    each one line. A run that is refused or stops has a row that says why.
    """
    for name in ("distributed", "pandas", "pyarrow"):
        needed(name)
    offer_installed()
    plug(plugins, "plugins")
    raw, file, base = read_scenario(scenario)
    for key, value in (set or {}).items():
        lay(raw, key, value)
    which = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not which or min(which) < 0 or len({*which}) < len(which):
        raise InputError(f"seeds: found {seeds!r:.60}, expected a number above 0, or different numbers from 0")
    if workers is not None and workers < 1:
        raise InputError(f"--workers: found {workers}, expected at least 1")
    if isinstance(over, Mapping):
        axes, choices = [axis(key, values) for key, values in over.items()], None
    else:
        axes, choices = listed(over)
    grid = points(raw, axes, file, base, len(which), choices)
    columns = _columns(axes, measure or {})
    rows, content = _rows(grid)
    facts = {
        "scenario": raw,
        "over": {a.key: a.values for a in axes} if choices is None else over,
        "seeds": which,
        "rows": content,
    }

    def engine() -> AbstractContextManager[Engine]:
        from hushgrid.lab.sweep import workers as dask_workers

        common = dask_workers.Common(
            rows, measure or {}, local=workers is not None and dask is None, cache=current_cache()
        )
        return dask_workers.engine(workers, dask, common)

    with closing(Record(Path(out) if out is not None else None, facts, columns, resume)) as record:
        _make(grid, which, file, record, engine, progress or Progress(quiet=True))
        ordered = [record.rows[str(point.number), str(seed)] for point in grid for seed in which]
        table = frame(ordered, columns, [a.key for a in axes])
        if record.out is not None:
            record.finish(ordered)
            if report:
                _write(table, raw, record.out)
    return table


def _columns(axes: Sequence[Axis], measure: DocumentView) -> list[str]:
    keys, others = [a.key for a in axes], ("seed", "status", "error")
    if clash := sorted({*measure} & {"point", *keys, *others, *FIGURES}):
        raise InputError(f"measure: found {clash[0]}, which is a column already, expected another name")
    return ["point", *keys, *others, *(name for name in FIGURES if name not in keys), *measure]


def _rows(grid: Sequence[Point]) -> tuple[dict[bytes, Loaded], list[str]]:
    """The rows of files, read once for all workers, and a digest of their content; what cannot be read says so in its
    runs.
    """
    loaded: dict[bytes, Loaded] = {}
    lines, size, tried = [], 0, {b""}
    for scenario in (point.scenario for point in grid):
        if scenario is None or not scenario.kind.records or scenario.problem.data.synthetic is not None:
            continue
        data, kind, network = scenario.problem.data, scenario.problem.kind, scenario.network
        with suppress(InputError):
            nodes = network.build().n if network is not None else data.nodes
            key = digest(of_rows(data, kind, nodes))
            if key in tried or size > SHARED:
                continue
            tried.add(key)
            loaded[key] = read(data, Path(), kind, nodes, None)
            content = hashlib.blake2b(digest_size=16)
            for array in (part for shard in loaded[key].shards for part in shard):
                content.update(np.ascontiguousarray(array).data)
                size += array.nbytes
            lines.append(content.hexdigest())
    return loaded, lines


def _make(
    grid: Sequence[Point],
    seeds: Sequence[int],
    file: str,
    record: Record,
    engine: Callable[[], AbstractContextManager[Engine]],
    progress: Progress,
) -> None:
    """Every run that has no row yet: first all points of one seed, then of the next."""
    from hushgrid.lab.sweep.workers import RunTask

    missing = [(point, seed) for seed in seeds for point in grid if (str(point.number), str(seed)) not in record.rows]
    if strange := [key for key in record.rows if int(key[1]) not in seeds]:
        raise InputError(f"--resume: found rows of seed {strange[0][1]}, expected --seeds that it is one of")
    counts = Counter(row["status"] for row in record.rows.values())
    total, began, made = len(grid) * len(seeds), time.monotonic(), 0

    def ended(point: Point, seed: int, row: DocumentView) -> None:
        record.add(cells({**row, "point": point.number, "seed": seed, **point.labels}))
        counts[row["status"]] += 1
        remaining = (time.monotonic() - began) / made * (total - sum(counts.values())) if made else None
        progress.runs(sum(counts.values()), total, counted(counts), remaining)

    if len(missing) < total:
        progress.phase(f"{total - len(missing)} of {total} runs were made before")
    for point, seed in missing:
        if point.scenario is None:
            ended(point, seed, {"status": "refused", "error": point.why})
    wanted = [(point, seed) for point, seed in missing if point.scenario is not None]
    if not wanted:
        return
    tasks = (RunTask(point.number, seed, seeded(point, seed), file) for point, seed in wanted)
    with engine() as working:
        progress.phase(working.summary)
        began = time.monotonic()
        for task, row in working.rows(tasks):
            made += 1
            ended(grid[task.point], task.seed, row)


def counted(counts: Mapping[str, int]) -> str:
    """What did not end well, in words."""
    return ", ".join(f"{counts[status]} {status}" for status in STATUS[1:] if counts.get(status))


def _write(table: DataFrame, raw: DocumentView, out: Path) -> None:
    """What a sweep leaves beside its rows when all its runs have ended."""
    from hushgrid.lab.comparison import page

    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    write_file(out / "runs.parquet", parquet.getvalue())
    write_file(out / "medians.csv", page.medians_of(table).to_csv(index=False).encode())
    write_file(out / "comparison.html", page.of_sweep(table, raw).encode())
