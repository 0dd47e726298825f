"""`hushgrid case`: what is in a power-system case, its partition, and the central solution."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from hushgrid.cli.researcher import case_day
from hushgrid.cli.researcher.case_solve import solve
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case, Lines, facts
from hushgrid.grid_cases.elements.parts import WITHOUT, DcLines
from hushgrid.grid_cases.matpower import BUILT_IN
from hushgrid.grid_cases.partition import Zones, between, explicit, partition, without_generator
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns

HEADER = ("case", "buses", "lines", "generators", "load MW", "load MVAr")


def arguments(parser: argparse.ArgumentParser) -> None:
    does = parser.add_subparsers(metavar="WHAT", dest="what", required=True)
    for name, text in (
        ("list", "List the cases that come with the program."),
        ("show", "Show what is in a case."),
        ("zones", "Cut a case into zones; show the zones and the tie lines; with --export, write the models."),
        ("solve", "Solve a case with one solver that sees everything (second-order-cone relaxation)."),
        ("day", "Make the files of a scenario over one day from a network of pandapower or SimBench with time series."),
        ("export", "Write a case, or a run's dispatch, to a file of another program."),
    ):
        made = does.add_parser(name, help=text, description=text)
        add = made.add_argument
        if name == "list":
            continue
        if name == "day":
            case_day.arguments(made)
            continue
        add(
            "case",
            metavar="CASE",
            help="a built-in case, simbench:CODE, the path of a MATPOWER .m or pandapower .json file"
            + (", or a run directory" if name == "export" else ""),
        )
        if name in ("zones", "solve"):
            add("--ignore", metavar="PART", action="append", default=[], choices=WITHOUT, help="a part to leave out")
        if name == "export":
            add(
                "file",
                metavar="FILE",
                type=Path,
                nargs="?",
                help="the file to write [CASE.json, in a run directory net.json]",
            )
            add("--period", metavar="T", type=int, help="of a run over a horizon which one, from 1")
            add(
                "--format",
                default="pandapower",
                choices=("pandapower",),
                help="the program whose file it is [pandapower]",
            )
            continue
        if name == "zones":
            add(
                "--zones",
                metavar="N|LISTS",
                default="3",
                help="the number of zones, or their buses as '[[1, 2], [3, 4]]' [3]",
            )
            add("--export", metavar="DIR", type=Path, help="write each zone's model to this directory: z1.npz, ...")
        if name == "solve":
            add("--objective", default="shedding", choices=("shedding", "cost"), help="what is minimised [shedding]")
            add(
                "--ac",
                action="store_true",
                help="for cost: also solve the AC optimum; for shedding: also compute the AC power flow",
            )
        add("--json", action="store_true", help="print JSON instead of text")


def main(options: argparse.Namespace) -> int:
    match options.what:
        case "list":
            print(listing())
        case "show":
            print(show(options.case, options.json))
        case "zones":
            print(zones(options.case, options.zones, options.export, options.json, options.ignore))
        case "solve":
            print(solve(options.case, options.objective, options.json, options.ac, options.ignore))
        case "day":
            print(case_day.day(options))
        case "export":
            print(export(options.case, options.file, options.period))
    return 0


def listing() -> str:
    """The cases that come with the program, a row each."""
    rows = []
    for name in BUILT_IN:
        f = facts(load(name))
        rows.append((name, f["buses"], f["lines"], f["generators"], f"{f['load_mw']:.1f}", f"{f['load_mvar']:.1f}"))
    return columns(rows, HEADER)


def show(name: str, as_json: bool) -> str:
    """What is in a case."""
    f = facts(load(name))
    if as_json:
        return json.dumps(f, indent=2)
    capacity = "unlimited" if f["generation_mw"] is None else f"up to {f['generation_mw']:.1f} MW"
    rows = [
        ("base", f"{f['base_mva']:g} MVA"),
        ("buses", f"{f['buses']}, {f['loaded_buses']} with a load"),
        ("lines", f"{f['lines']}, {f['transformers']} of them transformers, {f['limited_lines']} with a thermal limit"),
        ("generators", f"{f['generators']}, {capacity}"),
        ("costs", _costs(f)),
        ("load", f"{f['load_mw']:.1f} MW, {f['load_mvar']:.1f} MVAr"),
        *((word, f"{what}{': not modelled' * (word in f['not_modelled'])}") for word, what in f["parts"].items()),
        *(("left out", what) for what in f["left_out"]),
        ("digest", f"{f['digest'][:16]} (SHA-256 of all but the loads)"),
    ]
    return f"{f['case']}\n{columns(rows, indent=2)}"


def _costs(f: Document) -> str:
    without = f["generators"] - f["polynomial_costs"] - f["piecewise_costs"]
    counts = {"polynomial": f["polynomial_costs"], "piecewise linear": f["piecewise_costs"], "without": without}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none"


def zones(name: str, choice: str, export: Path | None, as_json: bool, ignore: Sequence[str] = ()) -> str:
    """A partition: choice is a number or lists of bus numbers, as in a scenario. export: where the models go.

    Raises InputError if the choice is no partition of the case.
    """
    case = load(name).without(ignore)
    try:
        wanted = json.loads(choice)
    except (ValueError, RecursionError):
        wanted = None
    if isinstance(wanted, bool) or not isinstance(wanted, int | list):
        raise InputError(f"--zones: found {choice!r}, expected a number or lists such as [[1, 2], [3, 4]]")
    cut = partition(case, wanted) if isinstance(wanted, int) else explicit(case, wanted)
    ties, dc_ties = _ties(cut, case.lines), _ties(cut, case.dc_lines)
    idle = without_generator(case, cut)
    written = _export(case, cut, export) if export is not None else []
    if as_json:
        facts = {"case": case.name, "zones": {z: list(b) for z, b in cut.items()}, "tie_lines": ties}
        facts |= {"dc_tie_lines": dc_ties} if len(case.dc_lines) else {}
        facts["without_generator"] = idle
        return json.dumps(facts | ({"models": written} if export is not None else {}), indent=2)
    zone_of = {bus: zone for zone, buses in cut.items() for bus in buses}
    rows = [(z, len(b), sum(zone_of[int(g)] == z for g in case.generators.bus)) for z, b in cut.items()]
    text = (
        f"{case.name}: {len(cut)} zones, {len(ties)} tie lines{f', {len(dc_ties)} dc tie lines' if dc_ties else ''}\n"
    )
    if idle:
        text += f"  without a generator, so all power comes over tie lines: {', '.join(idle)}\n"
    text += columns(rows, ("zone", "buses", "generators"), indent=2)
    width = 4 + max(map(len, cut))
    for zone, buses in cut.items():
        text += "\n" + fill(_runs(buses), 100, initial_indent=f"  {zone}".ljust(width), subsequent_indent=" " * width)
    for name_of, rows_of in (("line", ties), ("dc line", dc_ties)):
        if rows_of:
            text += "\n" + columns(
                [(t["row"], t["from"], t["to"], f"{t['zones'][0]}-{t['zones'][1]}") for t in rows_of],
                (name_of, "from", "to", "zones"),
                indent=2,
            )
    return text + "".join(f"\nwrote {path}" for path in written)


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers, three or more in a row as the first and the last of them."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


def _ties(zones: Zones, table: Lines | DcLines) -> list[Document]:
    """The lines between zones, their rows counted from 1, as the case file does."""
    zone_of = {bus: zone for zone, buses in zones.items() for bus in buses}
    cut = between(table, zones)
    ends = zip(*(column[cut].tolist() for column in (table.rows, table.from_bus, table.to_bus)), strict=True)
    return [{"row": row + 1, "from": a, "to": b, "zones": [zone_of[a], zone_of[b]]} for row, a, b in ends]


def _export(case: Case, zones: Zones, directory: Path) -> list[str]:
    from hushgrid.grid_cases.zone.build import zone_models
    from hushgrid.grid_cases.zone.model import save_model

    models = zone_models(case, [list(buses) for buses in zones.values()])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for zone, model in models.items():
            save_model(model, directory / f"{zone}.npz")
    except OSError as error:
        raise InputError(f"--export: {error.filename or directory}: {error.strerror}, expected a directory") from None
    return [str(directory / f"{zone}.npz") for zone in models]


def export(name: str, file: Path | None, period: int | None) -> str:
    """Write a case, or the dispatch of a run directory, as a network file of pandapower."""
    from hushgrid.grid_cases.pandapower import to_pandapower, write

    if Path(name).is_dir():
        return _export_run(Path(name), file, period)
    if period is not None:
        raise InputError(f"--period: found {period}, expected none: {name} is no run directory")
    case = load(name)
    file = file or Path(f"{case.name}.json")
    write(to_pandapower(case), file)
    text = f"wrote {file} ({case.name}, {len(case.buses)} buses; read it with pandapower.from_json)"
    return "\n".join([text, *(f"  left out: {what}" for what in case.held_parts().values())])


def _export_run(run: Path, file: Path | None, period: int | None) -> str:
    from hushgrid.broker.report.result import Result
    from hushgrid.grid_cases.pandapower import write

    net = Result.load(run).to_pandapower(period)
    file = file or run / ("net.json" if period is None else f"net-{period}.json")
    write(net, file)
    of = "" if period is None else f", period {period}; net.profiles has all of them"
    return f"wrote {file} ({len(net.bus)} buses, res_* by pandapower's own power flow{of})"
