"""Two devices whose data differ in one record, asked the same hostile things with equal noise.

What they then say is compared, and what they released is counted against what their ledgers show.
"""

from __future__ import annotations

import json

import numpy as np

from hushgrid.broker.simulation.setup import prepare
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.algorithms import ladmm
from hushgrid.kernels.patterns import neighbours, token
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.wire import COORDINATOR, Finish, Finished, Join, Refuse
from tests.support.devices.asked_pair import rows_file, zone_file
from tests.support.devices.zone_fleet import setup
from tests.support.scenarios.neighbour_scenarios import ALGORITHMS
from tests.support.scenarios.record_scenarios import scenario

# --- the devices that are asked ---


SMALL = {"problem.data": {"synthetic": {"rows": 6, "features": 3}, "normalize": "unit-rows"}}
CLIP = {"replace-one-record": {"clip": 1.0}}
LEARNERS = {
    "logistic": (2, CLIP, {}),
    "softmax": (3, CLIP, {"problem.kind": "softmax", "problem.classes": 3}),
    "least-squares": ((-1.0, 1.0), CLIP, {"problem.kind": "least-squares"}),
}


def rows_pair(kind, directory):
    """Device files over rows that differ in one record: another direction, the label at its other end."""
    labels, adjacency, _ = LEARNERS[kind]
    dice = np.random.default_rng(2)
    A = dice.normal(size=(6, 3))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    ends = (-1.0, 1.0) if labels == 2 else (0.0, labels - 1.0) if isinstance(labels, int) else labels
    b = np.array([ends[j % 2] for j in range(6)])
    A2, b2 = A.copy(), b.copy()
    A2[0], b2[0] = [7.0, 0.0, 0.0], ends[1]  # beyond the bound too
    return [rows_file(directory / name, *data, adjacency, labels) for name, data in (("a", (A, b)), ("b", (A2, b2)))]


def plans_of(kind):
    """{algorithm: a plan that the devices of this kind join}."""
    over = SMALL | LEARNERS[kind][2]
    found = {}
    for name in ("recal", "iadmm", "wadmm"):
        algorithm = {"name": name, "rounds": 8} | ({} if name == "recal" else {"rho": 1.0})
        walk = {} if name == "wadmm" else {"algorithm.walk": "hamiltonian"}
        found[name] = scenario(over | {"algorithm": algorithm, "privacy.epsilon": 40.0} | walk)
    for name, (keys, _) in ALGORITHMS.items():
        if kind == "logistic" or name in ("dpp2", "extra", "nids", "dgd", "dpladmm"):
            algorithm = {"name": name, "rounds": 4} | keys
            found[name] = scenario(over | {"algorithm": algorithm, "privacy.epsilon": 80.0})
    if kind == "logistic":
        algorithm = {"name": "iadmm", "rounds": 8, "rho": 1.0, "update": "exact"}
        found["iadmm, exact"] = scenario(over | {"algorithm": algorithm, "privacy.epsilon": 80.0})
    return {name: json.loads(encode_plan(prepare(scenario_from(raw)).plan)) for name, raw in found.items()}


# --- what is asked ---


NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    17,
    -0.0,
    0.5,
    1e-3,
    1e-12,
    1e-100,
    1e-300,
    1e-308,
    5e-324,
    1e3,
    1e8,
    10**8,
    1e12,
    2**53,
    2**63,
    1e100,
    1e150,
    1e154,
    1e300,
    1.7e308,
    1.7976931348623157e308,
    700.0,
    0.999,
    0.9,
]
#: The same at the ends of what a plan may carry: it is joined, and then has extreme steps.
ENDS = [0, 1, 2, 5, 50, 1000, 10_000, 10_000_000, 0.5, 0.1, 10.0, 100.0, 1e-30, 1e-12, 1e-9, 1e-6, 1e3, 1e6, 1e9, 1e19]
OTHERS = [
    None,
    True,
    "",
    "x",
    "random",
    "guarded",
    "none",
    "published",
    "gaussian",
    "exact",
    "gdp",
    [],
    [1],
    [0, 1, 0],
    {},
]


def leaves(value, path=()):
    """Every place in a mapping, inner ones too."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def laid(raw, path, value):
    """A copy with `value` at `path`."""
    copy = json.loads(json.dumps(raw))
    here = copy
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return copy


def changed(raw, dice):
    """A plan with one to three of its values replaced, mostly numbers by extreme numbers."""
    what = []
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3])):
        places = [p for p in leaves(raw) if p[0] != "format"]
        numeric = [p for p in places if isinstance(at(raw, p), (int, float)) and not isinstance(at(raw, p), bool)]
        # rows, L and edges are many places and seldom interesting
        few = [p for p in numeric if not isinstance(p[-1], int)] or numeric
        path = few[dice.integers(len(few))] if dice.random() < 0.7 else places[dice.integers(len(places))]
        values = (ENDS, NUMBERS, OTHERS)[int(np.searchsorted([0.6, 0.9], dice.random()))]
        value = values[dice.integers(len(values))]
        raw = laid(raw, path, value)
        what.append(f"{'.'.join(map(str, path))} = {value!r}")
    return raw, ", ".join(what) or "as it is"


def at(raw, path):
    for key in path:
        raw = raw[key]
    return raw


def next_round(pair, dice):
    """What would come next in an honest run, of any content: questions that are due."""
    machine = pair.member.driver.machine if pair.member.driver else None
    if isinstance(machine, neighbours.Neighbour):
        if not machine.state.t:
            pair.tell(COORDINATOR, 0, neighbours.Begin())
        value = vector(machine.size, dice)
        for src in machine.neighbours:
            if pair.member.driver:
                pair.tell(src, machine.state.t, neighbours.Iterate(value), everybody=True)
    elif isinstance(machine, token.TokenNode):
        vectors = tuple(np.resize(vector(v.size, dice), v.size) for v in machine.first)
        hop = min(machine.state.t + 1, machine.rounds - 1)
        pair.tell(COORDINATOR, 1, token.Notice())
        pair.tell(sorted(machine.neighbours)[0], hop, token.Token(machine.state.known, token.Leg(), 0, vectors))
    elif machine is not None:
        pair.tell(
            COORDINATOR, machine.state.t + 1, ladmm.W(np.resize(vector(machine.shared.size, dice), machine.shared.size))
        )


def zones_pair(directory, d=None):
    """Device files of a zone whose largest load differs by 0.01 p.u., the budget's unit."""
    world = setup()
    buses = tuple(sorted(world.plan.problem.zones["z1"]))
    d = loads(world.case, buses) if d is None else d
    other = d.copy()
    other[int(np.argmax(np.abs(d)))] += 0.01
    return [zone_file(directory / name, "case5", buses, v, world.case.base_mva) for name, v in (("a", d), ("b", other))]


def zone_plans():
    found = {}
    for mode, at in (("objective", "data"), ("objective", "gradient"), ("input", "data")):
        raw = json.loads(encode_plan(setup().plan))
        raw["privacy"] |= {"mode": mode, "at": at, "answers": 1 if mode == "input" else 4}
        found[f"ladmm {mode} {at}"] = raw
    return found


def honest_round(pair):
    machine = pair.member.driver.machine
    if isinstance(machine, neighbours.Neighbour):
        pair.tell(COORDINATOR, 0, neighbours.Begin())
        for src in machine.neighbours:
            pair.tell(src, machine.state.t, neighbours.Iterate(np.zeros(machine.size)), everybody=True)
    elif isinstance(machine, token.TokenNode):
        pair.tell(COORDINATOR, 1, token.Notice())
        if not machine.state.t:
            zeros = tuple(np.zeros(v.size) for v in machine.first)
            pair.tell(sorted(machine.neighbours)[0], 1, token.Token((), token.Leg(), 0, zeros))
    else:
        pair.tell(COORDINATOR, machine.state.t + 1, ladmm.W(np.zeros(machine.shared.size)))


ENTRIES = [
    0.0,
    -0.0,
    5e-324,
    -1e-310,
    1e-300,
    1.0,
    -1.0,
    1e8,
    2.0**40,
    -(2.0**41),
    1e100,
    1e154,
    1e300,
    1.7e308,
    -1.7e308,
    np.inf,
    -np.inf,
    np.nan,
]


def vector(size, dice):
    """Entries of all sizes, or nearly an honest one."""
    size = size if dice.random() < 0.9 else int(dice.choice([0, 1, size + 1, 3 * size]))
    if dice.random() < 0.5:
        return dice.normal(size=size) * 10.0 ** dice.integers(-3, 4)
    return np.array([ENTRIES[k] for k in dice.integers(len(ENTRIES), size=size)], float)


def message(pair, dice):
    """(src, seq, body, more) of something that may or may not be due."""
    member = pair.member
    machine = member.driver.machine if member.driver else None
    state = getattr(machine, "state", None)
    t, near = getattr(state, "t", 0), sorted(getattr(machine, "neighbours", ["n1"])) or ["n1"]
    size = (
        [v.size for v in getattr(machine, "first", ())]
        if isinstance(machine, token.TokenNode)
        else getattr(machine, "size", 3)
    )
    src = near[dice.integers(len(near))]
    seq = max(0, int(t + dice.integers(-2, 3))) if dice.random() < 0.9 else int(dice.choice([0, 2**31, 2**62]))
    kind = dice.random()
    if kind < 0.1:
        body = [Finish("done", "rounds"), Finish("stopped", "x", "refused"), Finished(), Join(), Refuse("no")][
            dice.integers(5)
        ]
        return COORDINATOR, 0, body, {}
    if isinstance(machine, token.TokenNode):
        fences = tuple(int(f) for f in dice.integers(0, 9, size=dice.choice([0, 0, 0, 1, 2])))
        leg = token.Leg() if dice.random() < 0.7 else token.Leg(1, int(dice.integers(9)), src, ("n2",))
        if kind < 0.2:
            return src, seq, token.Ack(len(fences), bool(dice.integers(2))), {}
        if kind < 0.5:
            by = [member.name, src, ""][dice.integers(3)]
            notice = token.Notice(len(fences), int(dice.integers(-1, 9)), fences, by, int(dice.integers(0, 5)), leg)
            return COORDINATOR, int(dice.integers(1, 5)), token.Notice() if kind < 0.35 else notice, {}
        vectors = tuple(vector(n, dice) for n in size)
        return (
            src,
            int(dice.integers(0, 9)) if dice.random() < 0.8 else seq,
            token.Token(fences, leg, int(dice.integers(3)), vectors),
            {},
        )
    if isinstance(machine, neighbours.Neighbour):
        if kind < 0.3 or not t:
            return COORDINATOR, 0, neighbours.Begin(), {}
        if kind < 0.4:
            return src, seq, neighbours.Lack(), {}
        return src, seq, neighbours.Iterate(vector(size, dice)), {"everybody": bool(dice.random() < 0.8)}
    width = getattr(machine, "shared", np.zeros(3)).size
    return COORDINATOR, seq, ladmm.W(vector(width, dice)), {}
