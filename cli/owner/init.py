"""`hushgrid init`: a commented scenario, or a device's file, from the user's own CSV file or MATPOWER case.

What cannot be known is asked for on a terminal; each question is an option too. What is written has passed
`hushgrid check` and runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hushgrid.cli.drafts import device as devices
from hushgrid.cli.drafts import scenario as scenarios
from hushgrid.cli.drafts.questions import QUESTIONS, Asked
from hushgrid.kernels.errors import HushgridError, InputError


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "data", metavar="DATA", help="a CSV file of rows or of a zone's loads, a MATPOWER .m file, or a built-in case"
    )
    parser.add_argument("--device", action="store_true", help="write a device's file, not a scenario")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="the file to write, which must not exist yet [NAME.yaml]"
    )
    for name, question in QUESTIONS.items():
        parser.add_argument(f"--{name}", metavar=question.value, help=question.text)


def main(o: argparse.Namespace) -> int:
    """Writes the file and says what it is."""
    print(write(o.data, o.device, o.out, Asked({name: getattr(o, name.replace("-", "_")) for name in QUESTIONS})))
    return 0


def write(data: str, device: bool, out: Path | None, ask: Asked) -> str:
    """Writes the file, and returns what it is and what to do with it.

    Raises InputError if an answer is missing or wrong; then no file is left.
    """
    from hushgrid.cli.owner.check import check

    draft = devices.device(data, ask) if device else scenarios.scenario(data, ask)
    path = out if out is not None else Path(f"{draft.name}.yaml")
    beside = [path, *([path.with_name(f"{draft.name}.npz")] if draft.rows else [])]
    for place in beside:
        if place.exists() or place.is_symlink():
            raise InputError(f"{place}: found an existing path, expected a new file (--out)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text(path.parent), encoding="utf-8")
        if draft.rows:
            import numpy as np

            beside[1].touch(mode=0o600)  # private data
            np.savez(beside[1], allow_pickle=False, A=draft.rows[0], b=draft.rows[1])
        verdict = check(path)
    except (HushgridError, OSError) as error:
        for place in beside:
            place.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(
                f"{error.filename or path}: {error.strerror or error}, expected a writable place"
            ) from None
        raise
    return f"{path}: {verdict}\nnext: hushgrid {draft.command} {path}"
