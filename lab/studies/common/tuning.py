"""Tuning on a grid that has no edge: a walk over a lattice of values until no neighbour of the best point is better.

A walk starts on few seeds, for which many points are cheap, and ends on all of them. The runs of all walks of a wave
are one `sweep`. What a sweep has left on the disk is known, also of one that was killed: the same walk goes on there.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.simulation.problems.cache import Cache, using_cache
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.types import DocumentView, Tensor
from hushgrid.lab.rollout.side_by_side import device_models
from hushgrid.lab.sweep.sweeps import sweep
from hushgrid.node.schema.yaml_file import Unfit

Place = tuple[int, ...]  #: steps from the start, along each axis
Asked = dict[Place, list[int]]  #: seeds that a point is yet to be run with
Row = Mapping[str, str]
Error = Callable[[Place, int], float | None]
CLOSE = 1.05
BETTER = 0.995  #: a neighbour is better from half a per cent on; where nothing changes any more a walk ends


class Axis(NamedTuple):
    """Values start factor^k, k whole, as long as they are within [low, high]: natural limits, such as one answer."""

    key: str
    start: float
    factor: float = 2.0
    low: float = 0.0
    high: float = inf

    def value(self, k: int) -> float:
        value = self.start * self.factor**k
        return float(f"{value:.4g}")

    def has(self, k: int) -> bool:
        return self.low <= self.value(k) <= self.high


class Search:
    """The walk of one method."""

    def __init__(
        self, axes: Sequence[Axis], seeds: Sequence[int], levels: Sequence[int], starts: Sequence[Place] = ()
    ) -> None:
        """levels: on how many of the seeds points are compared, one after the other; the last: all. starts: where walks
        begin, of which the one that ends best counts [at the axes' own start]."""
        self.axes, self.seeds, self.levels = axes, seeds, levels
        self.starts = starts or [(0,) * len(axes)]

    def values(self, place: Place) -> dict[str, float]:
        return {a.key: a.value(k) for a, k in zip(self.axes, place, strict=True)}

    def around(self, place: Place) -> list[Place]:
        """One step along one axis, either way; and along the first and the `answers` at once, since a shorter step
        wants more answers."""
        count = len(self.axes)
        moves = [tuple(way * (i == j) for j in range(count)) for i in range(count) for way in (-1, 1)]
        answers = next((i for i, a in enumerate(self.axes) if a.key == "answers"), 0)
        if answers:
            both = product((-1, 1), repeat=2)
            moves += [tuple(a * (j == 0) + b * (j == answers) for j in range(count)) for a, b in both]
        places = [tuple(k + d for k, d in zip(place, move, strict=True)) for move in moves]
        return [to for to in places if all(a.has(k) for a, k in zip(self.axes, to, strict=True))]

    def advance(self, error: Error) -> tuple[Place, Asked]:
        """The best place so far, and what must be known to go on: nothing if all walks have ended.

        error: of a point under a seed, infinite if it was refused; None if it is not known yet.
        """
        ends = [self._walk(start, error) for start in self.starts]
        wanted: Asked = {}
        for _, more in ends:
            wanted |= more
        count = self.levels[-1]
        best = ends[0][0] if wanted else min((place for place, _ in ends), key=lambda p: self._score(p, count, error))
        return best, wanted

    def _score(self, place: Place, count: int, error: Error) -> float:
        errors = [error(place, s) for s in self.seeds[:count]]
        return float(np.median([inf if e is None else e for e in errors]))

    def _walk(self, centre: Place, error: Error) -> tuple[Place, Asked]:
        """On all seeds a place is compared with its best neighbour on the seeds of the level before, if that came CLOSE
        there; on those seeds with all its neighbours."""

        def missing(places: Iterable[Place], count: int) -> Asked:
            each = {p: [s for s in self.seeds[:count] if error(p, s) is None] for p in places}
            return {p: seeds for p, seeds in each.items() if seeds}

        before = self.levels[0]
        for level in self.levels:
            last = level == self.levels[-1]
            while True:
                rivals = self.around(centre)
                if wanted := missing([centre, *rivals], before if last else level):
                    return centre, wanted
                if last:
                    score = self._score(centre, before, error)
                    rivals = sorted(rivals, key=lambda p: self._score(p, before, error))[:1]
                    rivals = [p for p in rivals if self._score(p, before, error) < CLOSE * score]
                    if wanted := missing([centre, *rivals], level):
                        return centre, wanted
                best = min(rivals, key=lambda p: self._score(p, level, error), default=centre)
                if not self._score(best, level, error) < BETTER * self._score(centre, level, error):
                    break
                centre = best
            before = level
        return centre, {}


# --- runs that are known ---


def key_of(point: DocumentView) -> str:
    return json.dumps(point, sort_keys=True)


class Known:
    """Rows of runs by point and seed, of all sweeps in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.cache = directory, Cache()
        self.rows: dict[tuple[str, int], Row] = {}
        for record in sorted(directory.glob("*/sweep.json")):
            self._read(record.parent)

    def _read(self, sweep_dir: Path) -> None:
        points = [key_of(point) for point in json.loads((sweep_dir / "sweep.json").read_text())["over"]]
        complete, _, _ = (sweep_dir / "runs.csv").read_text().rpartition("\n")
        for row in csv.DictReader(complete.splitlines()):
            self.rows[points[int(row["point"])], int(row["seed"])] = row

    def error(self, point: DocumentView, seed: int, column: str) -> float | None:
        row = self.rows.get((key_of(point), seed))
        if row is None:
            return None
        return float(row[column]) if row["status"] == "done" and row[column] not in ("", "nan") else inf

    def run(
        self,
        scenario: DocumentView,
        wanted: Iterable[tuple[DocumentView, Sequence[int]]],
        measure: Mapping[str, Callable[..., Any]],
    ) -> None:
        """Make runs: points, each with its seeds. Those of the same seeds are one sweep."""
        by_seeds: dict[tuple[int, ...], list[DocumentView]] = defaultdict(list)
        for point, seeds in wanted:
            missing = tuple(s for s in seeds if (key_of(point), s) not in self.rows)
            if missing and point not in by_seeds[missing]:
                by_seeds[missing].append(point)
        for seeds, points in by_seeds.items():
            if not points:
                continue
            content = key_of({"scenario": scenario, "points": points, "seeds": seeds})
            out = self.directory / hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
            try:
                with using_cache(self.cache):  # rows are read once for all sweeps
                    sweep(scenario, points, seeds, out=out, resume=out.exists(), measure=measure, report=False)
            except Unfit:
                raise
            except InputError as error:  # all points are refused
                refused = {"status": "refused", "error": str(error)}
                self.rows |= {(key_of(point), seed): refused for point in points for seed in seeds}
            else:
                self._read(out)


class KnownPoints:
    """What points are worth under some seeds, kept in a file: a line a point."""

    def __init__(self, file: Path, seeds: Sequence[int]) -> None:
        self.file, self.seeds = file, list(seeds)
        self.errors: dict[str, list[float]] = {}
        if file.is_file():
            complete, _, _ = file.read_text().rpartition("\n")
            self.errors = dict(json.loads(line) for line in complete.splitlines())

    def error(self, point: DocumentView, seed: int) -> float | None:
        errors = self.errors.get(key_of(point))
        return None if errors is None else errors[self.seeds.index(seed)]

    def run(
        self,
        scenario: DocumentView,
        points: Sequence[DocumentView],
        worth: Callable[[Tensor], Sequence[float]],
    ) -> None:
        """worth: of (S, n, d) each seed's error; what is refused or not finite is worth infinitely much."""
        for point in points:
            if (key := key_of(point)) in self.errors:
                continue
            try:
                models = device_models({**scenario, **point}, self.seeds)
                errors = [float(e) if np.isfinite(e) else inf for e in worth(models)]
            except (InputError, Refused):
                errors = [inf] * len(self.seeds)
            self.errors[key] = errors
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(json.dumps([key, errors]) + "\n")
