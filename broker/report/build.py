"""`report.html` of a run: one self-contained page for a reader who was not there, made from the run directory's files.

The page needs no script, loads nothing (its own content policy forbids it) and prints. The same run directory gives the
same bytes. A run whose privacy claim is upheld is shown by gate answers and public data only: the drawing takes the
case without its loads, and the raw-data figures are left out on reading (`rundir.RAW`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.report import day_page, dispatch, dispatch_page, quality, summary
from hushgrid.broker.report import network as row_page
from hushgrid.broker.report.charts import WITHHELD, charts
from hushgrid.broker.report.drawings import gridmap
from hushgrid.broker.report.drawings.numbers import MISSING, number
from hushgrid.broker.report.drawings.page import document, facts, figure, paragraphs, section, table
from hushgrid.broker.report.run_directory import Run, read
from hushgrid.broker.report.statement import Statement, standing, statement
from hushgrid.broker.report.wording import wording_of
from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.grid_cases.case import Case

LONG = 4000  #: characters of a scenario that is folded away: a walk or a network that is written out


def build(run_dir: Path, period: int | None = None) -> Path:
    """Writes `run_dir`/report.html (replacing it whole) and returns its path.

    period: of a run over a horizon the one whose map and set-points it shows, from 1 [that of the highest price].

    Raises InputError where the directory is missing or incomplete, a file is not what `hushgrid run` writes, or the
    drawing library is not installed.
    """
    run = read(Path(run_dir))
    if period is not None:
        if not run.result.get("horizon") or not 1 <= period <= run.periods:
            expected = f"1 to {run.periods}" if run.result.get("horizon") else "none: the run is no horizon"
            raise InputError(f"--period: found {period}, expected {expected}")
        run = replace(run, period=period)
    path = run.path / "report.html"
    part = path.with_suffix(".html.part")
    part.write_text(render(run), encoding="utf-8")
    os.replace(part, path)
    return path


def render(run: Run) -> str:
    """The page. Depends on `run` and, for zones, on the power-system case its scenario names; on no clock."""
    case, absent = _case(run)
    privacy = statement(run, case.base_mva if case else None)
    name = str(run.result.get("name") or run.path.name)
    body = [
        f'<header><p class="kind">hushgrid · report of a run</p><h1>{escape(name)}</h1>'
        f'<p class="verdict">{"</p><p>".join(map(escape, _first(run)))}</p></header>',
        _banner(privacy) + _quality(run),
        section("Key figures", facts(_key_figures(run))),
        *_found(run, case, absent, section("Along the walk" if run.walks else "Round by round", charts(run, privacy))),
        section("Privacy in full", _privacy(privacy)),
        section("What is not protected", facts(privacy.limits, wide=True)),
        _attack(run),
        section("How this run was made", _provenance(run)),
    ]
    return document(f"{name} – hushgrid report", "\n".join(body), dispatch_page.STYLE if run.least_cost else "")


def _found(run: Run, case: Case | None, absent: str, along: str) -> list[str]:
    """What was found, drawn and in tables, around the charts of how (`along`)."""
    if day := day_page.of(run):
        return [
            section("The day", day_page.drawn(run, day)),
            section("The grid", day_page.map_of(run)),
            section("Set-points of that period", day_page.tables(run)),
            *([section("One line out", screened)] if (screened := day_page.screened(run)) else []),
            along,
        ]
    if run.least_cost:
        drawn = dispatch_page.grid(run)
        parts = [section("The grid", drawn)] if drawn else []
        return [*parts, section(dispatch_page.title(run), dispatch_page.tables(run)), along]
    if run.zones:
        return [
            section("The grid", _grid(run, case, absent)),
            along,
            section("Set-points", dispatch_page.setpoints(run, case)),
        ]
    if run.sums:
        return [section("The sum", row_page.added(run))]
    return [section("The network", row_page.drawing(run)), along, section("Solution", row_page.solution(run))]


def _first(run: Run) -> list[str]:
    """The sentences under the run's name."""
    verdict = wording_of(run).verdict
    if not run.least_cost:
        return [verdict]
    title = f"{dispatch_page.name(run)} in {len(run.nodes())} zones"
    return [f"{title}: {(day_page.of(run) or dispatch_page.dispatch_of(run)).headline}.", verdict]


def _case(run: Run) -> tuple[Case | None, str]:
    """The run's power-system case, or None and why. Loads are dropped where the run is private."""
    if not run.zones:
        return None, ""
    try:
        case = run.load_case()
    except InputError as error:
        return None, f"The grid is not drawn: {error}."
    return (case.without_loads() if standing(run.result) == "upheld" else case), ""


def _banner(statement: Statement) -> str:
    word = {"upheld": "Upheld", "not upheld": "Not upheld", "not private": "Not private"}[statement.standing]
    more = "".join(f"<p>Privacy claim not upheld: {escape(reason)}</p>" for reason in statement.reasons)
    kind = statement.standing.replace(" ", "-")
    return (
        f'<section class="banner {kind}" aria-label="Privacy"><p class="word">{word}</p>'
        f'<div><p class="headline">{escape(statement.headline)}</p>{more}</div></section>'
    )


def _attack(run: Run) -> str:
    """Of a published run with a transcript: where the page is that says what its messages gave away."""
    if run.algorithm.variant != "published" or not (run.path / "transcript.jsonl").is_file():
        return ""
    return section(
        "What an eavesdropper recovers",
        "<p>The transcript of this run has all that an eavesdropper on every edge had. <code>hushgrid attack</code> "
        "of this "
        'directory writes what can be recovered from it: <a href="attack/attack.html">attack/attack.html</a>.</p>',
    )


def _quality(run: Run) -> str:
    """The verdict on the answer, which is none on privacy and never in its colours; "" of a run that has none."""
    verdict = run.result.get("quality")
    if not isinstance(verdict, Mapping) or not (
        why := quality.sentence(verdict, wording_of(run).differ, dispatch.feasible(run.result))
    ):
        return ""
    word = quality.WORD[verdict["verdict"]]
    sentence = ""
    if day := day_page.of(run):
        sentence = f"{day.sentence}."
    elif run.least_cost:
        sentence = dispatch_page.dispatch_of(run).sentence
    elif isinstance(run.result.get("served_mw"), int | float):
        sentence = power_words(run)
    more = f"<p>{escape(sentence)}</p>" if sentence else ""
    return (
        f'<section class="banner {escape(verdict["verdict"])}" aria-label="Quality of the answer"><p class="word">'
        f'{word[0].upper()}{word[1:]}</p><div><p class="headline">The answer: {escape(why)}.</p>{more}</div></section>'
    )


def power_words(run: Run) -> str:
    """What is generated and served, in a sentence."""
    words_of = {
        key: f"{number(run.result.get(f'{key}_mw'))} MW"
        for key in ("generation", "load", "served", "unserved", "spilled")
    }
    which = "the gate's noisy loads" if run.noisy_loads else "the loads"
    return (
        f"{words_of['generation']} are generated for a load of {words_of['load']}: {words_of['served']} are served, "
        f"{words_of['unserved']} are not, {words_of['spilled']} are generated and used by nobody ({which})."
    )


def _bytes(value: object) -> str:
    if not isinstance(value, int | float):
        return MISSING
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000:
            return f"{number(value)} {unit}"
        value /= 1000
    return f"{number(value)} GB"


def _key_figures(run: Run) -> list[tuple[str, str]]:
    result, wording, walks = run.result, wording_of(run), run.walks
    rows = dispatch_page.key_figures(run) if run.least_cost else []
    if day := day_page.of(run):
        rows = day_page.key_figures(run, day)
    planned = (run.scenario.get("algorithm") or {}).get("rounds")
    rounds = number(result.get("rounds_done")) + (f" of {number(planned)}" if planned is not None else "")
    if walks:
        blocks = f"{number(len(run.history['round']))} blocks of {number(len(run.nodes()))}"
        rows += [("Activations", f"{rounds} ({blocks})"), ("Walk", row_page.walk_words(result["walk"]))]
    else:
        rows.append(("Rounds", rounds + summary.finished(result)))
    rows.append(("Stopped because", _stopped(result.get("stopped_because"), walks)))
    if run.sums:
        summed = result.get("summed") or ()
        rows += [("Nodes in the sum", number(len(summed))), ("Their records", number(result.get("records")))]
    else:
        rows.append(("Consensus residual", number(result.get("consensus_residual")) + wording.unit))
    if result.get("max_violation") is not None:
        which = ", by the relaxation" if run.least_cost else ""
        rows.append((f"Largest violation of a limit{which}", number(result["max_violation"]) + " p.u."))
    if not run.least_cost:
        rows += _objective(run)
    for label, who in (
        ("Cap reached, then frozen", (result.get("privacy") or {}).get("capped")),
        ("Lost for good", result.get("lost")),
        ("Problem solved: the data of", result.get("solved") if result.get("lost") else None),
        ("In it by a last linear model", result.get("frozen")),
    ):
        if who and walks:
            rows.append((label, ", ".join(map(str, who))))
    nodes = result.get("nodes")
    count = len(nodes) if isinstance(nodes, Mapping | list | tuple) else nodes
    wall = result.get("wall_s")
    return [
        *rows,
        ("Messages (tokens handed over)" if walks else "Messages", number(result.get("messages"))),
        ("Bytes of these tokens" if walks else "Bytes", _bytes(result.get("bytes"))),
        *((label.capitalize(), text) for label, text in summary.levels(result)),
        ("Wall time", f"{number(wall)} s" if wall is not None else MISSING),
        (wording.members.capitalize(), number(count if count is not None else len(run.nodes()))),
        ("Transport", number(result.get("transport"))),
        ("Broker", "none" if result.get("broker") is None else str(result["broker"])),
    ]


def _objective(run: Run) -> list[tuple[str, str]]:
    """The objective, what is known of its distance from the optimum, and the power of zones."""
    result, private = run.result, standing(run.result) == "upheld"
    withheld = private and not (run.zones and run.noisy_loads)
    where = ", at the gate's noisy loads" if private and not withheld else ""
    rows = [] if run.sums else [(f"Objective{where}", WITHHELD if withheld else number(result.get("objective"), 5))]
    if result.get("test"):
        rows.insert(0, ("Test error", summary.test(result)))
    for key, label in (("optimality_gap", f"Gap to the optimum{where}"), ("relative_error", "Relative error of x")):
        if result.get(key) is not None:
            rows.append((label, number(result[key])))
    for key, label in (("generation_mw", "Generated"), ("load_mw", "Load"), ("served_mw", "Load served")):
        if result.get(key) is not None:
            rows.append((label, f"{number(result[key], 4)} MW"))
    return rows


def _stopped(because: object, walks: bool) -> str:
    """result.json's word for it, in the pattern's own unit."""
    return f"all {'activations' if walks else 'rounds'} were made" if because == "rounds" else number(because)


def network(run: Run, case: Case) -> gridmap.Network:
    """What the drawing of a grid shows."""
    buses = tuple(str(b) for b in case.buses.numbers)
    ends = zip(case.lines.from_bus, case.lines.to_bus, strict=True)
    loaded = case.buses.numbers[(case.buses.p_d != 0) | (case.buses.q_d != 0)]  # none where the run is private
    return gridmap.Network(
        nodes=buses,
        edges=tuple((str(a), str(b)) for a, b in ends),
        groups=_groups(run, case),
        generators=frozenset(str(b) for b in case.generators.bus),
        loads=frozenset(str(b) for b in loaded),
    )


def _groups(run: Run, case: Case) -> dict[str, list[str]]:
    zones = run.scenario["problem"].get("zones")
    if isinstance(zones, int):
        from hushgrid.grid_cases.partition import partition

        zones = partition(case, zones)
    elif isinstance(zones, list):
        zones = {f"z{i}": members for i, members in enumerate(zones, 1)}
    return {str(name): [str(bus) for bus in members] for name, members in (zones or {}).items()}


def _grid(run: Run, case: Case | None, absent: str) -> str:
    if case is None:
        return paragraphs([absent])
    grid = network(run, case)
    if len(grid.nodes) > gridmap.MAX_DRAWN:
        return paragraphs([f"The grid is not drawn: it has {number(len(grid.nodes))} buses."])
    ties = [f"{a}–{b}" for a, b in grid.ties()]
    which = f": {', '.join(ties)}" if 0 < len(ties) <= 24 else ""
    keys = [
        f'<span><i style="background:{gridmap.PALETTE[i % len(gridmap.PALETTE)]}"></i>{escape(zone)} '
        f"({len(members)} buses)</span>"
        for i, (zone, members) in enumerate(grid.groups.items())
    ]
    loads = (
        "Arrow heads mark buses with a load in the case file; sizes are not shown."
        if grid.loads
        else "Which buses carry a load is private and not shown."
    )
    mark = "G" if gridmap.bus_radius(len(grid.nodes)) >= gridmap.LEGIBLE else "A small white circle"
    caption = (
        f"{len(grid.nodes)} buses, {len(set(map(frozenset, grid.edges)))} connections, {len(ties)} tie lines "
        f"(dashed{which}). {mark} marks a bus with a generator. {loads} The layout follows connections, not geography."
    )
    label = f"The grid of {case.name} with {len(grid.groups)} zones"
    return figure("Zones and tie lines", f'<p class="keys">{"".join(keys)}</p>' + gridmap.svg(grid, label), caption)


def _privacy(statement: Statement) -> str:
    out = paragraphs(statement.meaning)
    if statement.terms:
        out += facts(statement.terms, wide=True)
    if statement.table:
        out += table(
            statement.columns,
            statement.table,
            "Per node, over the whole run. A dash: not set, or cannot be given as a difference.",
        )
    return out


def _provenance(run: Run) -> str:
    versions = run.result.get("versions") or {}
    pairs = versions.items() if isinstance(versions, Mapping) else [("versions", versions)]
    rows = [("Algorithm", f"{run.result.get('algorithm')}, variant {run.result.get('variant')}")]
    rows += [("Data", str(note)) for note in run.result.get("notes") or ()]
    rows += [(str(key), str(value)) for key, value in pairs]
    text = f"<pre>{escape(run.scenario_text.strip())}</pre>"
    if len(run.scenario_text) > LONG:
        text = f"<details><summary>Show all of it</summary>{text}</details>"
    return facts(rows) + f"<h3>Scenario, resolved</h3>{text}"
