"""Rounds around a coordinator, as they are recorded: w of each round, and every member's own."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import cast

import numpy as np

from hushgrid.broker.simulation.recorders.base import (
    Observer,
    Over,
    Recorded,
    Shape,
    Trace,
    Widths,
    declared,
    own_of,
    path_of,
    read,
    room,
)
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.levels import ABOVE, Place, places
from hushgrid.kernels.patterns.star import StarCentre, StarMember
from hushgrid.kernels.types import Index
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import COORDINATOR

WIDE = 1 << 14  #: entries of a row of which no two are in memory at a time
MEASURED = "measured"  #: the file of what the coordinator has measured


class MemberTrace(Trace):
    """A member's own vectors after the round; the noise of the round as drawn, if it may be revealed, else 0; answers.

    Beside them `<node>.kept` has the noisy data of mode input, the gate's one answer.
    """

    def __init__(self, directory: Path, node: str, algorithm: str, widths: Widths, reveal: bool, behind: int) -> None:
        super().__init__(directory, node, behind)
        self.algorithm, self.widths, self.reveal = algorithm, widths, reveal
        self._kept: Path | None = _kept(directory, node)  #: to be written still
        self._round, self._drawn = 0, 0.0  #: the round whose noise is written, and that noise

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine, gate = cast(StarMember, driver.machine), driver.gate
        row = declared(self.widths, self.algorithm, own_of(machine.state, self.widths))
        width = row.size + 2
        if machine.row:
            self.write(machine.row, row, width)
        if self._kept is not None and gate is not None and gate.state.kept.size:
            gate.state.kept.tofile(self._kept)
            self._kept = None
        if gate is None or not machine.answered_round:
            return
        answers = float(gate.state.answers)
        if self.reveal:
            self._noise(machine.answered_round, gate, fresh, width, row.size)
            self.write(machine.answered_round, np.array([answers]), width, row.size + 1)
        else:
            self.write(machine.answered_round, np.array([0.0, answers]), width, row.size)

    def _noise(self, answers: int, gate: Gate, fresh: bool, width: int, offset: int) -> None:
        """A round may be stored several times, asked again or only told its end: its noise is all that was drawn in
        it.
        """
        drawn, gate.drawn_l1 = (gate.drawn_l1, 0.0) if fresh else (0.0, gate.drawn_l1)
        new, self._round = answers != self._round, answers
        self._drawn = drawn if new else self._drawn + drawn
        if fresh and (new or drawn):
            self.write(answers, np.array([self._drawn]), width, offset)


class CoordinatorTrace(Trace):
    """w^{t+1}, and beside it in a file of its own what the coordinator has measured of each round."""

    def __init__(
        self, directory: Path, node: str, algorithm: str, widths: Widths, figures: tuple[str, ...], behind: int
    ) -> None:
        super().__init__(directory, node, behind)
        self.algorithm, self.widths, self.figures = algorithm, widths, figures
        self._measured = Trace(directory, MEASURED, behind) if figures else None

    def __call__(self, driver: Driver, fresh: bool) -> None:
        machine = cast(StarCentre, driver.machine)
        s = machine.state
        row = declared(self.widths, self.algorithm, own_of(s, self.widths))
        if machine.row:
            self.write(machine.row, row, row.size)
        if self._measured is not None and s.measured.size:
            measured = declared({"measured": len(self.figures)}, self.algorithm, {"measured": s.measured})
            self._measured.write(s.rounds, measured, measured.size)

    def close(self) -> None:
        super().close()
        if self._measured is not None:
            self._measured.close()


def widths(plan: RunPlan, shape: Shape, name: str) -> Widths:
    if (place := "" if name == COORDINATOR else name) in (averages_at := averaged(plan, shape)):
        return {"w": averages_at[place].entries.size}
    vectors, sizes = plan.algorithm.recorded, (shape.own_sizes[name], shape.shared[name].size)
    if len(vectors) > len(sizes):
        raise InputError(
            f"algorithm {plan.algorithm.name}: own: found {len(vectors)} vectors ({', '.join(vectors)}), expected 1 "
            "or 2 declared: the iterate, and one of what is shared"
        )
    return dict(zip(vectors, sizes, strict=False))


def averaged(plan: RunPlan, shape: Shape) -> dict[str, Place]:
    """Where the entries of w are averaged: all of them by the coordinator, or each at its place of two levels."""
    sites = plan.kind.sites(plan.problem)
    if not sites:
        return {ABOVE: Place(np.arange(shape.size), {}, {})}
    return places(shape.position, shape.size, sites)


def observer(plan: RunPlan, name: str, place: Path, reveal: bool, widths: Widths, behind: int) -> Observer:
    algorithm = plan.algorithm.name
    if name == COORDINATOR:
        return CoordinatorTrace(place, name, algorithm, widths, cast(Star, plan.algorithm).figures, behind)
    if name in plan.kind.sites(plan.problem):
        return CoordinatorTrace(place, name, algorithm, widths, (), behind)
    return MemberTrace(place, name, algorithm, widths, reveal, behind)


def recorded(plan: RunPlan, shape: Shape, over: Over, reveal: bool) -> Recorded:
    T = max((r[0] for r in over.travelled), default=0)
    t, nodes = plan.terms, plan.nodes
    algorithm = cast(Star, plan.algorithm)
    w = np.empty((T, shape.size))
    for site, place in averaged(plan, shape).items():
        w[:, place.entries] = _rows(over.trace, site or COORDINATOR, place.entries.size, T)
    masked = t is not None and t.masked is not None
    z, drawn, answered, more = {}, {}, {}, dict[str, np.ndarray]()
    for p in nodes:
        n, (_, *others) = shape.own_sizes[p], algorithm.recorded
        rows = _rows(over.trace, p, sum(widths(plan, shape, p).values()) + 2, T)
        if masked:
            rows = carried_on(rows)
        z[p], drawn[p], answered[p] = rows[:, :n], rows[:, -2], rows[:, -1]
        more |= {f"{key}_{p}": rows[:, n:-2] for key in others}
    gap = sum(squares(w, z[p], shape.position[p], shape.shared[p]) for p in nodes)
    measured = _rows(over.trace, MEASURED, len(algorithm.figures), T) if algorithm.figures else np.zeros((T, 0))
    figures = dict(zip(algorithm.figures, measured.T.tolist(), strict=True))
    if plan.kind.sharing == "addends":  # nobody has a copy that could differ
        gap = np.zeros(T)
    residual = figures.get("consensus_residual", np.sqrt(gap).tolist())
    noise: list[float | None] = [None] * T
    if reveal and t is not None:
        noise = [float(v) if np.isfinite(v := sum(drawn[p][k] for p in nodes)) else None for k in range(T)]
    answers = np.zeros((T, len(nodes)), dtype=np.int64)
    if masked:  # an attempt that was given up is an answer too
        answers[:] = np.array([answered[p] for p in nodes]).T
    elif t is not None:
        answers[:] = 1 if t.mode == "input" else algorithm.per_round * np.arange(1, T + 1)[:, None]
    so_far = {r[0]: r for r in over.travelled}
    messages = [so_far.get(k, (k, 0.0, 0, 0))[2] for k in range(T + 1)]
    size = [so_far.get(k, (k, 0.0, 0, 0))[3] for k in range(T + 1)]
    copies = plan.kind.sharing == "copies"
    # Of ladmm w leaves the box, and is noisier. In a masked run nobody has a model but w.
    led = masked or (copies and algorithm.server_holds_iterate(plan.problem.constrained))
    common = mean_of(list(z.values()), over.trace) if copies and not led else w
    return Recorded(
        rounds_done=T,
        x=common[-1] if T else np.zeros(shape.size),
        common=common,
        own_iterates=z,
        residual=[float(v) for v in residual],
        noise=noise,
        answers=answers,
        messages=[messages[k] - messages[k - 1] for k in range(1, T + 1)],
        bytes=[size[k] - size[k - 1] for k in range(1, T + 1)],
        total_messages=messages[T],
        total_bytes=size[T],
        capped=nodes if t is not None and t.capped else [],
        figures=figures,
        extras={"state": over.centre},
        trajectory={"w": w} | {f"z_{p}": z[p] for p in nodes} | more,
        solution=averages(w, z) if T and copies else {},
    )


def squares(w: np.ndarray, z: np.ndarray, position: Index, shared: Index) -> np.ndarray:
    """(T,) the sum of (w - z)^2 over the shared entries of each row, from left to right."""
    if len(w) < 2 or position.size < WIDE:
        return np.asarray(np.sum((w[:, position] - z[:, shared]) ** 2, axis=1))
    sums = np.empty(len(w))
    for k in range(len(w)):  # the same sums, a row in memory at a time
        difference = w[k, position] - z[k, shared]
        difference *= difference
        sums[k] = np.add.accumulate(difference, out=difference)[-1]
    return sums


def mean_of(each: list[np.ndarray], place: Path) -> np.ndarray:
    """The mean of arrays of one shape, summed in their order."""
    total = room(place, *each[0].shape)
    total[:] = each[0]
    for rows in each[1:]:
        total += rows
    total /= len(each)
    return total


def averages(w: np.ndarray, z: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The last w, and the averaged iterates (5.1c) over the rounds: w^(T), and each node's part of z^(T).

    w, z: (T, d) each, T >= 1; z is the mean over a round's local updates already.
    """
    return {"w": w[-1], "w_average": w.mean(axis=0)} | {
        f"z_average_{p}": iterates.mean(axis=0) for p, iterates in z.items()
    }


def carried_on(rows: np.ndarray) -> np.ndarray:
    """Rows (T, k) in which a member that was absent keeps what it had; zero before anything."""
    cumulative = np.vstack([np.zeros_like(rows[:1]), rows])
    for k in range(1, len(cumulative)):
        cumulative[k] = np.where(np.isnan(cumulative[k]), cumulative[k - 1], cumulative[k])
    return cumulative[1:]


def noisy_data(directory: Path, node: str) -> np.ndarray | None:
    """The noisy data that a member's gate gave in mode input; None if it gave none."""
    path = _kept(directory, node)
    return np.fromfile(path) if path.exists() else None


def _kept(directory: Path, node: str) -> Path:
    return directory / f"{node}.kept"


def _rows(directory: Path, node: str, width: int, rounds: int) -> np.ndarray:
    path = path_of(directory, node)
    written = read(path, 0, rounds * width) if path.exists() else np.zeros(0)
    if written.size < rounds * width:
        written = np.concatenate([written, np.full(rounds * width - written.size, nan)])
    return written.reshape(rounds, width)
