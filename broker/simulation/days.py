"""Days one after the other, each a run of its own: loads are new, storage and rounds go on where the last day ended.

Every figure here is of a run's result, so that a private run shows it too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from msgspec.structs import replace

from hushgrid.broker.report.day import day_of
from hushgrid.broker.report.dispatch import amount, money
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import results
from hushgrid.broker.simulation.fleet import run_fleet, scratch
from hushgrid.broker.simulation.interrupts import Interrupts
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup, own_loads
from hushgrid.broker.simulation.progress import Progress
from hushgrid.broker.simulation.started import Ledgers
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.columns import columns
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.power_flow.section import PLACE, ZonesProblem
from hushgrid.node.problems.rolling import Point

MOST = 366  #: days
OF_A_DAY = ("profiles", "availability")  #: tables that each day may have one of
SEEDS = 1 << 63  #: as many seeds there are
TABLE = "days.csv"


@dataclass(frozen=True, kw_only=True)
class DayFigures:
    """A day, as a row of days.csv. Powers and prices are those of the dispatch, at the loads that the zones answered.

    epsilon: by node, what its ledger has spent up to and with the day; None: no epsilon bounds it.
    """

    day: int
    cost: float  #: $: of the AC dispatch if every period has one, else of the plan
    source: str  #: ac or relaxed
    objective: float  #: $ of the plan
    gap: float | None
    unserved_mwh: float
    price_min: float  #: $/MWh, of all buses and periods
    price_max: float
    charged_mwh: float
    discharged_mwh: float
    stored_mwh: float  #: in all storage at the end of the day
    rounds: int
    verdict: str
    epsilon: dict[str, float | None]

    @classmethod
    def from_result(cls, day: int, result: Result) -> DayFigures:
        """Raises Stopped if the run has ended without a dispatch."""
        seen = day_of(result.summary, noisy=False)
        if seen is None:
            raise Stopped(f"day {day}: ended without a dispatch ({result.quality.verdict})")
        end = end_of(result).energy
        private = {name: account for name, account in result.privacy.per_node.items() if account.ledger is not None}
        return cls(
            day=day,
            cost=seen.cost if seen.ac is None else seen.ac,
            source="relaxed" if seen.ac is None else "ac",
            objective=seen.cost,
            gap=seen.gap,
            unserved_mwh=seen.unserved,
            price_min=min(result.price_min or ()),
            price_max=max(result.price_max or ()),
            charged_mwh=seen.hours * sum(result.charge_mw or ()),
            discharged_mwh=seen.discharged,
            stored_mwh=sum(end.values()),
            rounds=result.rounds_done,
            verdict=result.quality.verdict,
            epsilon={name: account.ledger.epsilon for name, account in private.items() if account.ledger},
        )


def check_days(scenario: Scenario, file: str, days: int) -> None:
    """Raises InputError unless so many days of this scenario can be run."""
    if not 1 <= days <= MOST:
        raise InputError(f"--days: found {days}, expected 1 to {MOST}")
    if not isinstance(scenario.problem, ZonesProblem) or scenario.problem.horizon is None:
        raise InputError(f"{file}: problem.horizon: found none, expected a section (--days)")


def of_day(scenario: Scenario, day: int) -> Scenario:
    """The scenario on its day, from 1: with the tables of that day, if their names have it, and a seed of its own."""
    problem = scenario.problem
    assert isinstance(problem, ZonesProblem)
    assert problem.horizon is not None
    files = {key: getattr(problem.horizon, key) for key in OF_A_DAY}
    named = {key: file.replace(PLACE, str(day)) for key, file in files.items() if file is not None}
    problem = replace(problem, horizon=replace(problem.horizon, **named))
    seed = None if scenario.seed is None else (scenario.seed + day - 1) % SEEDS
    return replace(scenario, problem=problem, seed=seed)


def end_of(result: Result) -> Point:
    """Where storage and generators stand after a run's last period."""
    energy, power = _last(result, "storage", "storage", "energy_mwh"), _last(result, "generation", "gen", "p_mw")
    assert result.case is not None
    base, units = result.case.base_mva, result.case.generators
    limits = zip(units.rows.tolist(), (units.p_min * base).tolist(), (units.p_max * base).tolist(), strict=True)
    # A table is rounded, and a solver passes a limit by a little.
    return Point(energy, {str(row + 1): min(max(power[str(row + 1)], low), high) for row, low, high in limits})


def _last(result: Result, table: str, name: str, value: str) -> dict[str, float]:
    """Of each element of a table, the value in its last period."""
    header, rows = result.tables.get(table, ((), []))
    cells = (dict(zip(header, row, strict=True)) for row in rows)
    return {str(row[name]): float(str(row[value])) for row in cells}  # period by period: what comes later stays


def run_days(
    scenario: Scenario,
    file: str,
    days: int,
    out: Path,
    state: Path | None = None,
    *,
    transport: str = "memory",
    broker: str = "auto",
    progress: Progress,
    interrupts: Interrupts,
) -> Iterator[DayFigures]:
    """The figures of each day, once its run directory is there: `out`/day-1, `out`/day-2 ..., and `out`/days.csv.

    state: a directory whose ledgers count over all runs; None: they count over these days. Each day has data of its
    own, so that its answer is a new one, and is charged. Raises InputError before anything is written, and whatever
    ends a run: then the days done stay.
    """
    check_days(scenario, file, days)
    results.check_out(out)
    each = [of_day(scenario, day) for day in range(1, days + 1)]
    setup = ZoneSetup(each[0], file)
    buses = tuple(setup.case.buses.numbers.tolist())
    for horizon in dict.fromkeys(one.problem.horizon for one in each):
        own_loads(setup.case, buses, horizon)  # every day's file is whole before the first day begins
    done, before, warm = list[DayFigures](), None, scenario.run.warm_start
    with scratch(interrupts) as place:
        kept = state or place / "state"
        for day, one in enumerate(each, 1):
            _declare(Ledgers(kept, True, {}), setup.plan.nodes)
            progress.phase(f"day {day} of {days}")
            begun = replace(one, run=replace(one.run, warm_start=warm))
            result = run_fleet(
                begun, file, transport, out / f"day-{day}", kept,
                broker=broker, progress=progress, interrupts=interrupts, before=before,
            )  # fmt: skip
            done.append(DayFigures.from_result(day, result))
            before, warm = end_of(result), str((out / f"day-{day}").resolve())
            _write(out / TABLE, done)
            yield done[-1]


def _declare(ledgers: Ledgers, nodes: Iterable[str]) -> None:
    """As `hushgrid ledger new-data` does it. A ledger that is not there yet has no earlier answer."""
    for name in nodes:
        if ledgers.path(name).exists():
            with closing(ledgers.open(name)) as ledger:
                ledger.new_data()


def _write(path: Path, done: Sequence[DayFigures]) -> None:
    plain = [field.name for field in fields(DayFigures)][:-1]
    partial = path.with_suffix(".partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*plain, *(f"epsilon_{name}" for name in done[-1].epsilon)])
            for one in done:
                cells = [*astuple(one)[:-1], *one.epsilon.values()]
                writer.writerow(["" if cell is None else cell for cell in cells])
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a writable place") from None


def text(done: Sequence[DayFigures], out: Path, state: Path | None) -> str:
    """A line a day, and their sums."""
    header = ("day", "cost $", "dispatch", "unserved MWh", "$/MWh", "gap %", "rounds", "quality", "epsilon so far")
    rows = [
        (
            *(one.day, money(one.cost), one.source, amount(one.unserved_mwh)),
            f"{one.price_min:.2f} to {one.price_max:.2f}",
            "-" if one.gap is None else f"{100 * one.gap:.2g}",
            *(one.rounds, one.verdict, _most(one)),
        )
        for one in done
    ]
    last, many = done[-1], f"{len(done)} day{'s' * (len(done) > 1)}"
    charged, given = (sum(getattr(one, key) for one in done) for key in ("charged_mwh", "discharged_mwh"))
    spent = ", ".join(f"{name} {_epsilon(value)}" for name, value in last.epsilon.items())
    lines = [
        columns(rows, header),
        f"{many}: {money(sum(one.cost for one in done))} $, {amount(sum(one.unserved_mwh for one in done))} MWh not "
        f"served; storage took {amount(charged)} MWh, gave {amount(given)} and holds {amount(last.stored_mwh)}",
        f"epsilon by ledger: {spent or 'none (no privacy)'}",
        f"ledgers: {state}"
        if state
        else f"ledgers: of these days only (--state keeps them), copies in {out / f'day-{last.day}' / 'ledger'}",
        f"reports: {out}/day-*/report.html, figures: {out / TABLE}",
    ]
    return "\n".join(lines)


def _most(one: DayFigures) -> str:
    """Of the node that has spent most."""
    spent = list(one.epsilon.values())
    return "-" if not spent else _epsilon(None if None in spent else max(value for value in spent if value is not None))


def _epsilon(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.6g}"
