"""`hushgrid fleet`: who belongs to a fleet. Each command is in one of the modules below, which is imported to say what
arguments it takes, and needs the extra `fleet` only if it runs.
"""

from __future__ import annotations

import argparse

from hushgrid.cli.operator import access, enrolment, members, revoking
from hushgrid.kernels.errors import InputError

MODULES = (enrolment, members, revoking, access)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command of the group."""
    commands = parser.add_subparsers(metavar="WHAT", dest="what", required=True)
    for module in MODULES:
        for name, text in module.TEXTS.items():
            made = commands.add_parser(name, help=text.split("\n")[0], description=text)
            module.arguments(name, made)
            made.set_defaults(module=module)


def main(options: argparse.Namespace) -> int:
    """Runs one command of the group. Raises InputError without the extra `fleet`."""
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise InputError(
            "hushgrid fleet: found no cryptography, expected it installed: pip install 'hushgrid[fleet]'"
        ) from None
    code: int = options.module.main(options)
    return code
