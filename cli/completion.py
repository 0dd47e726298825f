"""What a shell may write next (argcomplete, extra `laptop`). Bash: eval "$(register-python-argcomplete hushgrid)"."""

from __future__ import annotations

import argparse
from collections.abc import Callable

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
