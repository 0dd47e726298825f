"""A commented scenario, from a CSV file of rows or a power-system case."""

from __future__ import annotations

from pathlib import Path

from hushgrid.cli.drafts.draft import Draft, has_loads, is_case, quoted, relative, title
from hushgrid.cli.drafts.questions import KINDS, NETWORKS, Asked, column, count, number, one_of, text
from hushgrid.kernels.errors import InputError


def scenario(data: str, ask: Asked) -> Draft:
    if is_case(data):
        return _grid(data, ask)
    if has_loads(data):
        raise InputError(
            f"{data}: found the loads of a zone, expected rows of data or a case (a device's file: --device)"
        )
    return _records(data, ask)


def _grid(data: str, ask: Asked) -> Draft:
    from hushgrid.grid_cases import load

    case = load(data)
    name = ask("name", text, title(Path(data).stem))
    zones, rounds = ask("zones", count), ask("rounds", count, "100")
    change, epsilon = ask("change", number, "0.01"), ask("epsilon", number)

    def written(folder: Path) -> str:
        network = relative(data, folder) if Path(data).is_file() else quoted(data)
        power = f"{change * case.base_mva:g} MW or MVAr more or less ({change:g} p.u. of {case.base_mva:g} MVA)"
        return f"""\
# Power flow over {zones} zones of {case.name}: the zones agree on it without telling each other their loads.
hushgrid: 1
name: {quoted(name)}

problem:
  kind: zones
  case: {network}
  zones: {zones}                        # the program draws the borders; or each zone's bus numbers: [[1, 2], [3, 4]]

algorithm:
  name: ladmm                     # linearised ADMM: a coordinator averages what the zones say about the cut lines
  rounds: {rounds}
  # local_updates: 5              # more work in each zone, the same number of messages

privacy:
  # What is hidden: that one bus draws {power}.
  adjacency: {{bounded-change: {quoted(change)}}}
  # How well, over the whole run: whoever sees every message tells the two apart with odds of at most e^epsilon.
  epsilon: {quoted(epsilon)}
  # Noise is added to a zone's loads once, and everything is computed from the noisy loads.
  mode: input
"""

    return Draft(name, written, "run")


def _records(data: str, ask: Asked) -> Draft:
    from hushgrid.node.problems.records.files import read_csv

    kind = ask("kind", one_of(*KINDS))
    label = ask("label", column, "-1")
    table = read_csv(Path(data), kind, label=label)  # type: ignore[arg-type]
    m, q = table.A.shape
    name = ask("name", text, title(Path(data).name.partition(".")[0]))
    nodes, network = ask("nodes", count), ask("network", one_of(*NETWORKS), "ring")
    rounds = ask("rounds", count, str(50 * nodes))
    classes = ask("classes", count) if kind == "softmax" else 0
    epsilon, delta = ask("epsilon", number), ask("delta", number, "1e-5")
    # Of unit rows a logistic gradient is at most 1 long, and seldom longer than 3/4 once the model is better than none.
    clip = 0.75 if kind == "logistic" else 1.0
    class_line = f"\n  classes: {classes}                      # public" if classes else ""

    def written(folder: Path) -> str:
        rows = f"{m} rows of {q} features"
        return f"""\
# {nodes} nodes learn one model from {rows}: a token with the model walks from node to node, and each adds a
# step computed from a noisy gradient of its own rows.
hushgrid: 1
name: {quoted(name)}

problem:
  kind: {kind}
  data:
    csv: {relative(data, folder)}
    label: {quoted(label)}                     # the column of the labels
    normalize: unit-rows          # every row is divided by its norm
  row_bound: 1.0                  # R >= |a|_2 of every row, public{class_line}
  l2: 0.001                       # ridge: l2/2 |x|^2

network: {{kind: {network}, nodes: {nodes}}}   # the rows are dealt evenly

algorithm:
  name: recal                     # other methods take other keys: see docs/reference/scenario.md
  rounds: {rounds}                     # hops of the token: {rounds / nodes:g} for each node
  walk: hamiltonian               # around the network; `random` goes to any neighbour alike

privacy:
  # What is hidden: whose record any one of a node's is. A record's gradient is clipped to this norm.
  adjacency: {{replace-one-record: {{clip: {clip}}}}}
  mechanism: gaussian
  # How well, over the whole run: whoever sees every message tells two such data sets apart with odds of at most
  # e^epsilon, but for a probability of about delta.
  epsilon: {quoted(epsilon)}
  delta: {quoted(delta)}
  accountant: gdp
"""

    return Draft(name, written, "run")
