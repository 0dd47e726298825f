"""A device's file, as the scenario of its fleet asks for it; what the owner consents to is a proposal."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from hushgrid.cli.drafts.draft import quoted
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.types import DocumentView
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import Scenario

RUNS = 4  #: that the proposed budget lasts for
TRUST = "trust: {ca: ca.crt, crl: crl.pem}   # as in all files of the fleet: its broker can forge no message"
NO_TRUST = "# trust: {ca: ca.crt}            # if all files of the fleet have it, its broker can forge no message"


def text(
    name: str, place: tuple[str, str], scenario: Scenario, raw: DocumentView, data: str, *, trust: bool = False
) -> str:
    """The file of `name`, beside its certificate and key. `place`: fleet and broker; `raw`: the scenario as it was
    read; `data`: that section; `trust`: the fleet trusts no broker.
    """
    fleet, broker = place
    terms = make_plan(scenario, scenario.kind.public(scenario, "scenario")).terms
    epsilon = terms.epsilon if terms else 1.0
    delta = f"\n  delta: {quoted(RUNS * terms.delta)}" if terms and terms.delta else ""
    adjacency = (raw.get("privacy") or {}).get("adjacency", {"bounded-change": 0.01})
    tls = {"ca": "ca.crt", "cert": f"{name}.crt", "key": f"{name}.key"}
    return f"""\
# The device {name}: what it holds, and what its owner consents to. Relative paths are relative to this file.
node: {quoted(name)}
fleet: {quoted(fleet)}
broker: {quoted(broker)}
tls: {quoted(tls)}
{TRUST if trust else NO_TRUST}
state: {quoted(f"state-{name}")}                 # its ledger and its outcome; keep it
# mark: /another/disk/{name}.mark   # remembers how far the ledger has come, against an old copy of it
{data}\
budget:                           # over the life of the ledger, whatever a coordinator asks: {RUNS} runs as planned
  epsilon: {quoted(RUNS * epsilon)}{delta}
  adjacency: {quoted(adjacency)}
allow:                            # what the owner consents to in one run
  algorithms: [{scenario.algorithm.name}]
  per_run: {{epsilon: {quoted(epsilon)}}}
"""


def zone_data(name: str, case: str, buses: Sequence[int]) -> str:
    """The section of a zone's data."""
    return f"""\
data:
  case: {quoted(case)}                    # the public network; the loads in it are not used
  zone: {quoted(list(buses))}
  loads: loads-{name}.csv             # private: put its own in place of the case file's
"""


def rows_data(file: str, labels: str) -> str:
    """The section of a data problem's rows."""
    return f"""\
data: {quoted(file)}                      # private, on the box
labels: {labels}              # public: no plan can ask what its labels are; one beyond is moved to the nearest
"""


def write_loads(file: Path, case: str, buses: Sequence[int]) -> None:
    """The loads of these buses as the case file has them, which are public."""
    network = load(case)
    values = (loads(network, tuple(buses)) * network.base_mva).tolist()
    with file.open("w", newline="") as out:
        rows = zip(buses, values[: len(buses)], values[len(buses) :], strict=True)
        csv.writer(out, lineterminator="\n").writerows([("bus", "p_mw", "q_mvar"), *rows])
