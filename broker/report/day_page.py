"""The part of the report that a run over a horizon has of its own: what the day costs and does, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from hushgrid.broker.report import dispatch, dispatch_page, quality
from hushgrid.broker.report.day import Day, day_of
from hushgrid.broker.report.drawings import plots
from hushgrid.broker.report.drawings.gridmap import PALETTE
from hushgrid.broker.report.drawings.numbers import fixed
from hushgrid.broker.report.drawings.page import figure, paragraphs, table
from hushgrid.broker.report.run_directory import Array, Run
from hushgrid.kernels.types import DocumentView

OUTAGES = (
    *("Line out", "From, to", "Highest loading, %", "Of branch", "Period"),
    *("Voltage nearest a limit", "Bus", "In period"),
)
STORED = ("storage", "contingencies")  #: tables that no snapshot has
WORST = 12  #: outages that the page lists
SHOWN = 6  #: generators that the chart of powers tells apart
MORE = {"storage": "discharge", "not served": "unserved"}  #: what else covers the load
POWERS = ("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw", "slack_mvar")
HEADINGS = ("Period", "Load, MW", "Served, MW", "Unserved, MW", "Charging, MW", "Discharging, MW", "Prices, $/MWh")


def of(run: Run) -> Day | None:
    """The day that a run has planned; None of a run that is none, or has ended without a plan."""
    return day_of(run.result, run.noisy_loads)


def hour(run: Run, t: int) -> Run:
    """The run as if period t (from 1) were a snapshot, for what is drawn of one."""
    result = {key: value for key, value in run.result.items() if key not in ("horizon", "bound", "gap")}
    result |= {key: run.result[key][t - 1] for key in POWERS} | {"period": t}
    tables = {
        name: tuple(row for row in rows if row["period"] == t)
        for name, rows in run.tables.items()
        if name not in STORED
    }
    tables["buses"] = tuple({k: v for k, v in row.items() if k != "price_relaxed"} for row in tables["buses"])
    ac = run.result.get("ac") or {}
    solved = ac.get("objective") is not None or (ac.get("failed") is not None and t not in ac["failed"])
    cost = float(sum(row["cost_per_h"] for row in tables["generation"]))
    result["objective"] = cost
    result["ac"] = {"status": ac.get("status")}
    if solved:
        result["ac"] = {"status": dispatch.SOLVED, "objective": cost} | {key: result[key] for key in POWERS}
    return replace(run, result=result, tables=tables)


def dearest(run: Run) -> int:
    """The period, from 1, in which a bus has the highest price of the day."""
    return int(np.argmax(run.result["price_max"])) + 1


def key_figures(run: Run, day: Day) -> list[tuple[str, str]]:
    """Name and value pairs."""
    how = "AC" if day.ac is not None else "relaxed"
    rows = [
        (f"Load served ({day.loads})", f"{dispatch.amount(day.served)} of {dispatch.amount(day.load)} MWh"),
        ("Periods", f"{day.periods} of {day.hours:g} h"),
        (f"Generation ({how})", f"{dispatch.amount(day.generation)} MWh"),
        (f"Cost of the day ({how}{day.slack})", f"{dispatch.money(day.cost if day.ac is None else day.ac)} $"),
        ("Given by storage", _energy(day.discharged)),
        ("Unserved", _energy(day.unserved)),
        ("Curtailed: generated, used by nobody", _energy(day.spilled)),
    ]
    if day.failed:
        rows.append(("Periods without an AC dispatch", ", ".join(map(str, day.failed))))
    if day.bound is not None:
        rows.append(("Bound: no plan costs less, proven", f"{dispatch.money(day.bound)} $"))
    if day.gap is not None:
        rows.append(("Distance from it", f"at most {quality.at_most(day.gap)}"))
    if day.disagreement is not None:
        rows.append(("Largest disagreement of two zones", f"{day.disagreement:,.3f} MW or MVAr"))
    return rows + dispatch_page.extremes(run)


def _energy(value: float) -> str:
    return f"{dispatch.amount(value) if value >= dispatch.SEEN else '0'} MWh"


def drawn(run: Run, day: Day) -> str:
    """Powers, storage and prices over the day, the map of its dearest period, and the table of its periods."""
    result, at = run.result, np.arange(1.0, day.periods + 1)
    label = f"period of {day.hours:g} h"
    parts = [_powers(run, day, at, label)]
    if energies := _paths(run, "storage", "storage", "energy_mwh"):
        which = "Energy of each unit"
        if len(energies) > len(PALETTE):
            energies, which = _paths(run, "storage", "zone", "energy_mwh"), "Energy of the units of each zone"
        chart = plots.lines(
            "energy", "Energy of storage", at, energies, from_zero=True, xlabel=label, ylabel="MWh", each="zones"
        )
        parts.append(figure("Storage", chart, f"{which} at the end of each period, as planned."))
    low, high = np.array(result["price_min"]), np.array(result["price_max"])
    middle = np.median(np.array(list(result["prices"].values())), axis=0)
    band = {"median": (at, middle, low, high)}
    chart = plots.bands("price", "Prices by period", band, xlabel=label, ylabel="$/MWh", linear=True)
    caption = "Of the plan over all periods: the median over the buses, between the lowest and the highest of a bus."
    parts.append(figure("Prices", chart, caption))
    return f'<div class="charts">{"".join(parts)}</div>' + _table(run, day)


def _powers(run: Run, day: Day, at: Array, label: str) -> str:
    """What generates and what storage gives, one on the other, against what is used."""
    result = {key: np.array(run.result[f"{key}_mw"]) for key in ("load", "charge", "discharge", "unserved", "spilled")}
    sources = {f"generator {name}": values for name, values in _paths(run, "generation", "gen", "p_mw").items()}
    sources = _largest({name: values for name, values in sources.items() if np.abs(values).max() >= dispatch.SEEN})
    sources |= {name: result[key] for name, key in MORE.items() if result[key].max() >= dispatch.SEEN}
    needs = {"load": result["load"]}
    if result["charge"].max() >= dispatch.SEEN:
        needs["load and charging"] = result["load"] + result["charge"]
    rest = ["losses"]
    rest += ["what is generated and used by nobody"] if result["spilled"].max() >= dispatch.SEEN else []
    rest += ["what the bars below zero take"] if any(values.min() < 0 for values in sources.values()) else []
    return figure(
        "Power",
        plots.stacked("power", "Power by period", at, sources, needs, xlabel=label, ylabel="MW"),
        f"What generators and storage give is stacked; the lines are the load ({day.loads}), and the load with what "
        f"charges storage. What is above the lines: {' and '.join(rest)}.",
    )


def _largest(sources: dict[str, Array]) -> dict[str, Array]:
    """Generators with the most energy by themselves, the others as one."""
    if len(sources) <= SHOWN:
        return sources
    first = sorted(sources, key=lambda name: float(np.abs(sources[name]).sum()))[::-1][: SHOWN - 1]
    others = [values for name, values in sources.items() if name not in first]
    shown = {name: values for name, values in sources.items() if name in first}
    return shown | {f"{len(others)} others": np.sum(others, axis=0)}


def map_of(run: Run) -> str:
    """The map of the period that is asked for, or of the dearest."""
    t = run.period or dearest(run)
    why = ", in which a bus has the highest price of the day" if t == dearest(run) else ""
    other = f"hushgrid report RUN_DIR --period {t % run.periods + 1}"
    text = f"Period {t} of {run.periods}{why}. For another: {other}."
    return paragraphs([text]) + dispatch_page.grid(hour(run, t))


def tables(run: Run) -> str:
    """The tables of the period that is shown; those of all periods are in the run directory."""
    t = run.period or dearest(run)
    text = f"Period {t}. generation.csv, balance.csv, lines.csv, buses.csv and storage.csv have every period."
    return paragraphs([text]) + dispatch_page.tables(hour(run, t))


def screened(run: Run) -> str:
    """What each line that goes out leaves, the worst of all periods; "" where it was not looked at."""
    rows = run.tables.get("contingencies", ())
    if not rows:
        return ""
    outages: dict[int, list[DocumentView]] = {}
    for row in rows:
        outages.setdefault(row["branch"], []).append(row)
    solved = {k: each for k, each in outages.items() if any(row["outcome"] == "solved" for row in each)}
    islands = sum(all(row["outcome"] == "island" for row in each) for each in outages.values())
    unsolved = sum(row["outcome"] == "no power flow" for row in rows)
    text = [
        f"One line out at a time, in each period, at the plan's set-points: {len(solved)} of {len(outages)} lines "
        f"leave the network whole. {_overloads(rows)} This is a check, no constraint: the plan knows nothing of it."
    ]
    text += [f"{_count(islands, 'other line')} would cut buses off: no power flow is computed."] if islands else []
    text += [f"No power flow was found for {_count(unsolved, 'outage')}."] if unsolved else []
    worst = sorted((max(map(_loading, each)), k) for k, each in solved.items())[::-1][:WORST]
    cells = []
    for _, k in worst:
        loaded = max(solved[k], key=_loading)
        low = min((row for row in solved[k] if row["outcome"] == "solved"), key=_room)
        at = f"{loaded['worst_branch']:.0f}" if isfinite(loaded["worst_branch"]) else ""
        voltage = f"{low['v_pu']:.3f} of {low['v_min']:.3f} to {low['v_max']:.3f}"
        ends = f"{loaded['from']} to {loaded['to']}"
        percent = f"{loaded['loading_percent']:.1f}" if at else ""
        when = str(loaded["period"]), voltage, f"{low['worst_bus']:.0f}", str(low["period"])
        cells.append([str(k), ends, percent, at, *when])
    caption = f"The {len(cells)} lines whose loss loads another most; contingencies.csv has every line and period."
    return paragraphs(text) + (table(list(OUTAGES), cells, caption) if cells else "")


def _overloads(rows: Sequence[DocumentView]) -> str:
    """How many outages overload a line, in words."""
    over = [row for row in rows if _loading(row) > 100]
    solved = [row for row in rows if row["outcome"] == "solved"]
    beyond = sum(_room(row) < -1e-4 for row in solved)
    voltages = "No voltage is beyond a limit."
    if beyond:
        voltages = f"A voltage is beyond a limit in {beyond} of {_count(len(solved), 'power flow')}."
    if not over:
        return f"No line is overloaded. {voltages}"
    lines, periods = len({row["branch"] for row in over}), len({row["period"] for row in over})
    return f"The loss of {_count(lines, 'line')} overloads another, in {_count(periods, 'period')}. {voltages}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _loading(row: DocumentView) -> float:
    return float(row["loading_percent"]) if isfinite(row["loading_percent"]) else 0.0


def _room(row: DocumentView) -> float:
    return float(min(row["v_pu"] - row["v_min"], row["v_max"] - row["v_pu"]))


def _paths(run: Run, name: str, element: str, column: str) -> Mapping[str, Array]:
    """(T,) of each element of a table, by its name; rows of one name are added up."""
    paths: dict[str, Array] = {}
    for row in run.tables.get(name, ()):
        paths.setdefault(str(row[element]), np.zeros(run.periods))[int(row["period"]) - 1] += row[column]
    return paths


def _table(run: Run, day: Day) -> str:
    result = run.result
    columns = [result[f"{key}_mw"] for key in ("load", "served", "unserved", "charge", "discharge")]
    ends = zip(result["price_min"], result["price_max"], strict=True)
    prices = [f"{fixed(low)} to {fixed(high)}" for low, high in ends]
    rows = [[str(t), *(fixed(column[t - 1]) for column in columns), prices[t - 1]] for t in range(1, day.periods + 1)]
    cells = table(list(HEADINGS), rows, f"The day period by period, at {day.loads}.")
    return f"<details><summary>Period by period ({day.periods} rows)</summary>{cells}</details>"
