"""`hushgrid`: the one program. A thin layer: each command reads its arguments and calls the room that does the work.

A room is imported when its command runs, so a device pays for its own part only.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hushgrid.kernels.errors import HushgridError, InputError

EPILOG = """exit codes: 0 done; 2 the input is wrong; 3 refused (privacy budget, owner's consent, ledger behind its mark);
4 stopped without finishing (a member or the broker is missing, interrupted); 1 a defect of this program.
environment: HUSHGRID_MQTT_USER and HUSHGRID_MQTT_PASSWORD for the broker; HUSHGRID_DEBUG=1 for the trace of a defect."""
#: What the machine denies us, no defect: no space, no permission, no descriptors or memory.
DENIED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Whatever goes wrong is one line on stderr."""
    try:
        options = _parser().parse_args(argv)
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except SystemExit as ended:  # --help, --version
        return int(ended.code or 0)
    except HushgridError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted", 4)
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough. What is buffered goes nowhere, so that the interpreter's own
        # flush at the end does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DENIED:
            return _say(f"{error.filename or 'the system'}: {error.strerror}", 4)
        if os.environ.get("HUSHGRID_DEBUG"):
            traceback.print_exc()
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return _say(f"defect: {text} ({Path(at.filename).name}:{at.lineno}; HUSHGRID_DEBUG=1 shows the trace)", 1)


def _say(text: str, code: int) -> int:
    print(f"hushgrid: {text}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def __init__(self, **how: Any) -> None:
        super().__init__(allow_abbrev=False, **how)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see '{self.prog} --help')")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hushgrid",
        description="Devices solve a problem together over MQTT without giving their data away.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(to: Any, name: str, command: Callable[[argparse.Namespace], int] | None, text: str) -> _Parser:
        made: _Parser = to.add_parser(name, help=text.split("\n")[0], description=text)
        made.set_defaults(command=command)  # None: one of its own commands is required
        return made

    c = add(
        commands, "run", _run, "Run a scenario with simulated nodes, in one process or as a fleet through a broker."
    )
    c.add_argument("scenario", metavar="SCENARIO", type=Path)
    c.add_argument("--transport", choices=("memory", "mqtt"), default="memory", help="[memory]")
    c.add_argument(
        "--broker",
        metavar="BROKER",
        help="with mqtt: auto (mosquitto if found, else embedded) | embedded | mosquitto | mqtt://host:port | mqtts://host:port [auto]",
    )
    c.add_argument("--out", metavar="DIR", type=Path, help="the run directory, a new path [runs/<name>-<UTC time>]")
    c.add_argument("--state", metavar="DIR", type=Path, help="ledgers that count over runs [of this run only]")
    c.add_argument("--seed", type=int, help="the scenario's seed; the run is then not private")
    c.add_argument(
        "--set", metavar="path.to.key=value", action="append", default=[], help="lay a value over the scenario; repeats"
    )
    c.add_argument("--quiet", action="store_true", help="no progress on stderr")
    c.add_argument("--json", action="store_true", help="result.json on stdout and nothing else")

    c = add(commands, "check", _check, "Validate a scenario, device or coordinator configuration without a network.")
    c.add_argument("file", metavar="FILE", type=Path)

    c = add(commands, "report", _report, "(Re)build report.html of a run.")
    c.add_argument("run_dir", metavar="RUN_DIR", type=Path)

    c = add(commands, "node", _node, "Run one device, until SIGTERM.")
    c.add_argument("config", metavar="CONFIG", type=Path)

    c = add(
        commands,
        "coordinator",
        _coordinator,
        "Coordinate a fleet of devices: the configured scenario runs as soon as all members are there.\n"
        "Then the coordinator stays and waits; SIGUSR1 begins the next run. A run under way when it is stopped is gone "
        "on with at the next start. What it saw of each run is kept in <state>/runs/.",
    )
    c.add_argument("config", metavar="CONFIG", type=Path)
    c.add_argument("--once", action="store_true", help="end after one run, with its exit code")

    c = add(commands, "broker", _broker, "Run the embedded MQTT broker on loopback, until SIGTERM.")
    c.add_argument("--port", type=int, default=1883, help="0: a free one [1883]")

    ledger = add(commands, "ledger", None, "What a device has spent, on what, and what is left.")
    does = ledger.add_subparsers(metavar="WHAT", required=True)
    for name, text in (
        ("show", "What has been spent, by run and in all; what is left where FILE is the device's configuration."),
        ("verify", "Whether the ledger is whole and not behind its mark: 0, or 2 with a line for each problem."),
        ("accept", "As the device's owner, record what a ledger behind its mark has lost as spent."),
    ):
        c = add(does, name, _ledger, text)
        c.set_defaults(what=name)
        c.add_argument("file", metavar="FILE", type=Path, help="a ledger, or the device's configuration")
        if name == "show":
            c.add_argument("--delta", type=float, help="at which epsilon is stated [the runs' own]")
            c.add_argument("--json", action="store_true")
        c.add_argument("--mark", metavar="FILE", type=Path, help="the mark outside [the configuration's]")

    case = add(commands, "case", None, "Power-system cases, their partition, the central solution.")
    does = case.add_subparsers(metavar="WHAT", required=True)
    c = add(does, "list", _case, "The cases that come with the program.")
    c.set_defaults(what="list")
    for name, text in (
        ("show", "What is in a case."),
        ("zones", "A partition of a case into zones, its tie lines, and each zone's model."),
        ("solve", "The central solution by one solver that sees everything (second-order-cone relaxation)."),
    ):
        c = add(does, name, _case, text)
        c.set_defaults(what=name)
        c.add_argument("case", metavar="CASE", help="a built-in case or the path of a MATPOWER .m file")
        if name == "zones":
            c.add_argument("--zones", metavar="N|LISTS", default="3", help="a number, or '[[1, 2], [3, 4]]' [3]")
            c.add_argument("--export", metavar="DIR", type=Path, help="write each zone's model there: z1.npz, ...")
        if name == "solve":
            c.add_argument("--objective", default="shedding", choices=("shedding", "cost"), help="[shedding]")
        c.add_argument("--json", action="store_true")

    c = add(commands, "bench", _bench, "The benchmarks, as a table or JSON.")
    c.add_argument("name", metavar="NAME", nargs="?")
    c.add_argument("--json", action="store_true")
    return parser


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="the program's version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"hushgrid {version('hushgrid')}")
        parser.exit()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP are taken as Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(o: argparse.Namespace) -> int:
    with _terminable():
        return _simulate(o)


def _simulate(o: argparse.Namespace) -> int:
    from hushgrid.broker import results, simulation, summary
    from hushgrid.broker.progress import Progress
    from hushgrid.node.config import load_scenario

    if o.broker not in (None, "auto") and o.transport != "mqtt":
        raise InputError(f"--broker: found {o.broker} with --transport {o.transport}, expected --transport mqtt")
    scenario = load_scenario(o.scenario, {"seed": o.seed} if o.seed is not None else None, o.set)
    out = o.out or results.default_out(scenario.name)
    with Progress(quiet=o.quiet or o.json) as shown:
        result = simulation.run(
            scenario, o.transport, out, o.state, broker=o.broker or "auto", progress=shown, file=str(o.scenario)
        )  # fmt: skip
    if o.json:
        sys.stdout.write((out / "result.json").read_text(encoding="utf-8"))
    else:
        print(summary.text(result, scenario))
    return 0


def _check(o: argparse.Namespace) -> int:
    from hushgrid.broker.check import check

    print(f"ok: {check(o.file)}")
    return 0


def _report(o: argparse.Namespace) -> int:
    from hushgrid.broker.report import build

    print(build(o.run_dir))
    return 0


def _node(o: argparse.Namespace) -> int:
    from hushgrid.node import daemon
    from hushgrid.node.config import load_device

    return daemon.main(load_device(o.config), str(o.config))


def _coordinator(o: argparse.Namespace) -> int:
    from hushgrid.broker import coordinate
    from hushgrid.node.config import load_coordinator

    return coordinate.main(load_coordinator(o.config), str(o.config), o.once)


def _broker(o: argparse.Namespace) -> int:
    from hushgrid.broker.embedded import serve

    serve(o.port)
    return 0


def _ledger(o: argparse.Namespace) -> int:
    from hushgrid.broker import ledgers

    match o.what:
        case "show":
            print(ledgers.show(o.file, o.mark, o.delta, o.json))
        case "verify":
            print(ledgers.verify(o.file, o.mark))
        case "accept":
            print(ledgers.accept(o.file, o.mark))
    return 0


def _case(o: argparse.Namespace) -> int:
    from hushgrid.broker import cases

    match o.what:
        case "list":
            print(cases.listing())
        case "show":
            print(cases.show(o.case, o.json))
        case "zones":
            print(cases.zones(o.case, o.zones, o.export, o.json))
        case "solve":
            print(cases.solve(o.case, o.objective, o.json))
    return 0


def _bench(o: argparse.Namespace) -> int:
    from hushgrid.broker import bench

    return bench.main(o.name, o.json)


if __name__ == "__main__":
    sys.exit(main())
