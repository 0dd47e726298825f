"""What a shell may write next (argcomplete, extra `laptop`), and the argument that many commands have.

Bash: eval "$(register-python-argcomplete hushgrid)".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from hushgrid.scenarios import names


def answer(parser: argparse.ArgumentParser) -> None:
    """Tells the shell that asks, and ends the process; nothing if argcomplete is not installed."""
    try:
        from argcomplete import autocomplete
    except ImportError:
        return
    autocomplete(parser)


def scenario_or_file(prefix: str, **_: object) -> list[str]:
    """The completions of an argument that `hushgrid.scenarios` (`find`) reads."""
    from argcomplete.completers import FilesCompleter

    files: Callable[[str], list[str]] = FilesCompleter()
    return [name for name in names() if name.startswith(prefix)] + files(prefix)


def scenario_argument(parser: argparse.ArgumentParser) -> None:
    """The scenario that a command is about, and the modules whose algorithms it may name."""
    scenario = parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        type=Path,
        help="a scenario file, or the name of one that comes with the program",
    )
    scenario.completer = scenario_or_file  # type: ignore[attr-defined]
    parser.add_argument(
        "--plugin",
        metavar="MODULE",
        action="append",
        default=[],
        help="a module of your own, installed or in this folder, whose algorithms may run; may be repeated",
    )


def plug_algorithms(options: argparse.Namespace) -> None:
    """Registers the algorithms of `--plugin`, and reads which ones installed packages offer. Raises InputError."""
    from hushgrid.kernels.algorithms.registry import offer_installed, plug

    if options.plugin and not {"", str(Path.cwd())} & {*sys.path}:
        sys.path.append(str(Path.cwd()))  # last: no file of this folder may stand in for an installed module
    plug(options.plugin, "--plugin")
    offer_installed()
