"""A process that has imported what a device needs and forks one when it is asked: a device starts in milliseconds.

It reads lines, each a JSON object: a command and its {"arguments", "environment", "directory", "log"}. It prints the
process id of each child. Where its own argument names a directory, the exit code of every child is left there, in a
file named by its process id.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import hushgrid.broker.coordinator.daemon
import hushgrid.cli.main
import hushgrid.node.problems.power_flow.files
import hushgrid.node.problems.records.device
import hushgrid.node.runtime.daemon
from tests.support.storm.recorded import PLACE, noted


def command(arguments: list[str], environment: dict[str, str], directory: str) -> int:
    """`hushgrid ARGUMENTS` as a program of its own would run it."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hushgrid", *arguments]
    with noted(Path(environment[PLACE])) if PLACE in environment else nullcontext():
        return hushgrid.cli.main.main()


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
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                out = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(out, 1)
                os.dup2(out, 2)
                code = command(asked["arguments"], asked["environment"], asked["directory"])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
