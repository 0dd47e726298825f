"""`hushgrid`: the one program. A thin layer: a command reads its arguments and calls the package that does the work.

Each command is a module with the command's name, `arguments(parser)` and `main(options)`, in the folder of those who
type it: a researcher, a device's owner, a fleet's operator. A module is imported only if its command runs, so a device
loads its own part only.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from hushgrid.kernels.errors import HushgridError, InputError

#: Every command and what `--help` says of it. The first line stands in the list of all commands.
COMMANDS = {
    "init": "Write a commented scenario, or a device's file, for your own data.",
    "run": (
        "Run a scenario with simulated nodes, in one process or as a fleet through a broker.\n"
        "The run directory gets the report, result.json, the tables and the ledgers. A summary goes to stdout."
    ),
    "sweep": "Run a scenario at every point of a grid, under the same seeds; a row a run, medians and a comparison.",
    "plan": (
        "Choose answers, step, clip and mechanism for an epsilon, and say what error to expect.\n"
        "It uses public numbers and synthetic rows alone: it opens no data file and asks no device."
    ),
    "audit": (
        "Measure what a scenario's noise reveals, and compare it with the claim.\n"
        "A lower bound on epsilon from games at the gate on neighbouring data sets: it can refute a claim, "
        "never confirm one."
    ),
    "simulate": (
        "Run the daemons of a scenario's fleet under one seed, where messages, disks, clocks and power fail.\n"
        "Nothing waits: a month takes minutes. What breaks a promise is shrunk, and lived again by --replay. "
        "Exit code 1: a promise was broken."
    ),
    "compare": "Compare finished runs: what they reached, promise and cost, and what differs.",
    "check": (
        "Check a scenario, a device's file or a coordinator's file, without a network.\n"
        "For a device it also says, in words, what its owner consents to."
    ),
    "report": "Build report.html of a run again.",
    "attack": (
        "Recover from a run's transcript what an eavesdropper on every edge can: gradients, rows, images.\n"
        "It reads the transcript alone, and writes RUN_DIR/attack/. On a guarded run it ends with noisy answers."
    ),
    "status": "Show a fleet of devices, as its broker knows it, without stopping one.",
    "watch": (
        "Watch a fleet: pages and figures on this machine, or a table on the terminal.\n"
        "With --http it serves the fleet, the run under way and the last answer, read only, until SIGTERM. It listens "
        "on loopback, unless a certificate and a password are given. With --device it shows a device from its files."
    ),
    "doctor": (
        "Check an installation step by step, without disturbing a running device.\n"
        "Each step is ok, warn or bad, with what to do. Exit code 2: there is something to do; 4: "
        "it may pass by itself."
    ),
    "node": "Run one device, until SIGTERM.",
    "coordinator": (
        "Coordinate a fleet of devices, until SIGTERM.\n"
        "The configured scenario runs as soon as all members are connected. Then the coordinator waits; SIGUSR1 begins "
        "the next run. If the coordinator is stopped during a run, it continues the run at its next start. What it "
        "saw of each run is kept in <state>/runs/."
    ),
    "fleet": "Make a fleet's members: certificates, access lists, who comes and who goes.",
    "broker": "Run the embedded MQTT broker on loopback, until SIGTERM.",
    "ledger": "Show what a device has spent, on what, and what is left; accept a loss; declare new data.",
    "deploy": "Write out the installer, the systemd units, the broker's files and the example fleets.",
    "budget": (
        "Choose a budget: what error an epsilon a window buys, from public numbers alone.\n"
        "It opens no data file and asks no device."
    ),
    "case": "Show power-system cases, cut them into zones, solve them centrally.",
    "bench": "Run the benchmarks: what the program costs in time and memory.",
    "study": "Repeat the studies of the papers; without a name, list them.",
}
#: The folder of each command: of those who type it.
FOLDERS = {
    "researcher": (
        "run",
        "sweep",
        "plan",
        "audit",
        "simulate",
        "compare",
        "report",
        "attack",
        "case",
        "bench",
        "study",
    ),
    "owner": ("init", "check", "doctor", "node", "ledger", "budget"),
    "operator": ("status", "watch", "coordinator", "broker", "deploy", "fleet"),
}
ABOUT = """Decentralised optimisation over MQTT with differential privacy. Each device keeps
its data, adds its own noise, and enforces its own privacy budget."""
EPILOG = """exit codes:
  0  done
  1  a defect of this program
  2  the input is wrong
  3  refused: the privacy budget, the owner's consent, or a ledger behind its mark
  4  stopped without finishing: interrupted, diverged, or a member, the broker
     or a disk is missing

environment:
  HUSHGRID_MQTT_USER, HUSHGRID_MQTT_PASSWORD  user and password at the broker
  HUSHGRID_DEBUG=1                            shows the trace of a defect"""
#: Errors of the machine, which are no defects: no space, no permission, no descriptors or memory.
DENIED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Whatever goes wrong is one line on stderr."""
    try:
        arguments = sys.argv[1:] if argv is None else argv
        if "_ARGCOMPLETE" in os.environ:
            from hushgrid.cli import completion

            completion.answer(make_parser(os.environ.get("COMP_LINE", "").split()[1:2]))
        options = make_parser([word for word in arguments if not word.startswith("-")][:1]).parse_args(arguments)
        options.program = argv is None
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
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return _say(f"defect: {text} ({Path(frame.filename).name}:{frame.lineno}; HUSHGRID_DEBUG=1 shows the trace)", 1)


def _say(text: str, code: int) -> int:
    print(f"hushgrid: {text}", file=sys.stderr)
    return code


def make_parser(filled: Collection[str]) -> argparse.ArgumentParser:
    """The parser that knows every command, and the arguments of those in `filled`."""
    parser = _Parser(
        prog="hushgrid",
        description=ABOUT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        made = commands.add_parser(name, help=text.split("\n")[0], description=text)
        if name in filled:
            folder = next(folder for folder, names in FOLDERS.items() if name in names)
            command = import_module(f"hushgrid.cli.{folder}.{name}")
            command.arguments(made)
            made.set_defaults(command=command.main)
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def __init__(self, **how: Any) -> None:
        super().__init__(allow_abbrev=False, **how)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see '{self.prog} --help')")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **_: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help="the program's version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import hushgrid

        print(f"hushgrid {hushgrid.__version__}")
        parser.exit()
