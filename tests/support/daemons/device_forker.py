"""A process that has imported what a device needs and forks one when it is asked: a device starts in milliseconds.

It reads lines and prints the process id of each child:

    CONFIG tab LOG       a device: `hushgrid node CONFIG`, its command's own function, in a process of its own
    DIRECTORY tab LOG    a whole fleet with its coordinator in one process, over memory: one run, gone on with where it
    stood a JSON object        any command: {"arguments", "environment", "directory", "log"}

Where its own argument names a directory, the exit code of every child is left there, in a file named by its process id.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, suppress
from math import inf
from pathlib import Path

import hushgrid.cli.main
import hushgrid.node.problems.power_flow.files
import hushgrid.node.problems.records.device
import hushgrid.node.runtime.daemon
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.daemon import prepare
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.runtime.member import Member
from tests.support.storm.recorded import PLACE, noted


def whole(directory: Path) -> int:
    """One run of the devices `directory`/*/*.yaml and of the coordinator `directory`/centre/coordinator.yaml."""
    with ExitStack() as stack:
        ends: list[Endpoint] = []
        for file in sorted(directory.glob("*/[nz]?.yaml")):
            config = load_device(file)
            state, mark = Path(config.state), Path(config.mark or "")
            ledger = stack.enter_context(closing(Ledger(state / f"{config.node}.ledger", config.node, mark)))
            device, journal = (
                config.kind.device(config, str(file)),
                NoiseJournal(state / f"{config.node}.drawn", ledger),
            )
            stack.callback(journal.close)
            outcome = config.kind.outcome(device, Path(config.state))
            ends.append(
                Member(
                    config.fleet, device, ledger, config.budget, config.allow, log=say, outcome=outcome, journal=journal
                )
            )
        config = load_coordinator(directory / "centre" / "coordinator.yaml")
        case, plan = prepare(config, "")
        own = stack.enter_context(closing(Ledger(Path(config.state) / "coordinator.ledger", "coordinator")))
        centre = coordinator_of(config.fleet, plan, case, own, wait_s=inf, silent_s=inf)

        def unborn(name: str) -> Endpoint:
            raise AssertionError(f"{name} has died by itself")

        MemoryBroker([*ends, centre], unborn).run(lambda: centre.finished)
        assert centre.error is None, centre.error
        centre.conclude()
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def command(arguments: list[str], environment: dict[str, str], directory: str) -> int:
    """`hushgrid ARGUMENTS` as a program of its own would run it."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hushgrid", *arguments]
    with noted(Path(environment[PLACE])) if PLACE in environment else nullcontext():
        return hushgrid.cli.main.main()


def act(line: str) -> tuple[str, Callable[[], int]]:
    """(log, what to do) of a line."""
    if line.startswith("{"):
        asked = json.loads(line)
        return asked["log"], lambda: command(asked["arguments"], asked["environment"], asked["directory"])
    what, log = line.rstrip("\n").split("\t")
    if Path(what).is_dir():
        return log, lambda: whole(Path(what))
    return log, lambda: hushgrid.cli.main.main(["node", what])


def serve(codes: Path | None) -> None:
    def reap(*_: object) -> None:
        """Nobody waits for a child but this process: whoever asked for it has its process id."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if codes:
                    new = codes / f"{ended[0]}.new"
                    new.write_text(str(os.waitstatus_to_exitcode(ended[1])))
                    new.rename(codes / str(ended[0]))

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        log, run = act(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(out, 1)
                os.dup2(out, 2)
                code = run()
                if not line.startswith("{"):
                    say(f"ended with {code}")
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
