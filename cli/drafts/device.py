"""A device's commented file, from its rows or its loads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from hushgrid.cli.drafts.draft import LOADS, Draft, has_loads, is_case, quoted, relative
from hushgrid.cli.drafts.questions import KINDS, Asked, column, count, number, one_of, text
from hushgrid.kernels.errors import InputError


def device(data: str, ask: Asked) -> Draft:
    if not Path(data).is_file():
        raise InputError(f"{data}: found no such file, expected a CSV file of rows, or of loads ({LOADS.decode()})")
    return _zone_device(data, ask) if has_loads(data) else _rows_device(data, ask)


def _head(name: str, ask: Asked) -> Callable[[Path], str]:
    """The lines that every device's file begins with."""
    fleet, broker = ask("fleet", text), ask("broker", text)
    certs = ask("certs", text, "certs") if broker.startswith("mqtts") else ""

    def written(folder: Path) -> str:
        files = {"ca": "ca.crt", "cert": f"{name}.crt", "key": f"{name}.key"}
        tls = {key: os.path.relpath(Path(certs) / file, folder) for key, file in files.items()} if certs else None
        return f"""\
# The device {name}: what it holds, and what its owner consents to. Relative paths are relative to this file.
node: {quoted(name)}
fleet: {quoted(fleet)}
broker: {quoted(broker)}
{f"tls: {quoted(tls)}" if tls else "# tls: {ca: ca.crt, cert: ..., key: ...}   # with mqtts"}
state: {quoted(f"state-{name}")}                 # its ledger and its outcome; keep it
# mark: /another/disk/{name}.mark   # remembers how far the ledger has come, against an old copy of it
# source: {{file: ...}}               # where its data come from, run after run: file, folder, command or mqtt
# sink: {{mqtt: {{broker: ..., topic: ...}}}}   # who is told the outcome: file, mqtt, exec
"""

    return written


def _consent(epsilon: float, per_run: float, delta: str, adjacency: str) -> str:
    return f"""\
budget:                           # over the life of the ledger, whatever a coordinator asks
  epsilon: {quoted(epsilon)}{delta}
  adjacency: {adjacency}
allow:                            # what the owner consents to in one run
  per_run: {{epsilon: {quoted(per_run)}}}
"""


def _zone_device(data: str, ask: Asked) -> Draft:
    name, case = ask("node", text), ask("case", text)
    is_case(case)
    buses = _buses(data)
    head = _head(name, ask)
    change, epsilon = ask("change", number, "0.01"), ask("epsilon", number)
    per_run = ask("per-run", number, str(epsilon))

    def written(folder: Path) -> str:
        network = relative(case, folder) if Path(case).is_file() else quoted(case)
        return (
            head(folder)
            + f"""\
data:
  case: {network}                    # the public network; the loads in it are not used
  zone: {quoted(buses)}
  loads: {relative(data, folder)}    # private
"""
            + _consent(epsilon, per_run, "", f"{{bounded-change: {quoted(change)}}}   # p.u.")
        )

    return Draft(name, written, "node")


def _buses(data: str) -> list[int]:
    """The bus numbers of a zone's loads; the loads themselves are checked when the device's file is."""
    buses = []
    for line, row in enumerate(Path(data).read_text(encoding="utf-8", errors="replace").splitlines()[1:], 2):
        bus = row.partition(",")[0].strip()
        if row.strip() and not re.fullmatch("[0-9]{1,9}", bus):
            raise InputError(f"{data}:{line}: found a malformed row, expected {LOADS.decode()}")
        buses += [int(bus)] if row.strip() else []
    return sorted(buses)


def _rows_device(data: str, ask: Asked) -> Draft:
    from hushgrid.node.problems.records.data import unit_rows
    from hushgrid.node.problems.records.files import read_csv

    kind = ask("kind", one_of(*KINDS))
    table = read_csv(Path(data), kind, label=ask("label", column, "-1"))  # type: ignore[arg-type]
    name = ask("node", text)
    if kind == "least-squares":
        labels = f"{{low: {quoted(ask('low', number))}, high: {quoted(ask('high', number))}}}"
    else:
        labels = f"{{classes: {2 if kind == 'logistic' else ask('classes', count)}}}"
    head = _head(name, ask)
    epsilon, delta = ask("epsilon", number), ask("delta", number, "1e-5")
    per_run = ask("per-run", number, str(epsilon))

    def written(folder: Path) -> str:
        rows = f"A {table.A.shape}, each row divided by its norm, and b, from {relative(data, folder)}"
        return (
            head(folder)
            + f"""\
data: {quoted(f"{name}.npz")}                      # private: {rows}
labels: {labels}              # public: no plan can ask what its labels are; one beyond is moved to the nearest
"""
            + _consent(epsilon, per_run, f"\n  delta: {quoted(delta)}", "{replace-one-record: {clip: 1.0}}")
        )

    return Draft(name, written, "node", (unit_rows(table.A), table.b))
