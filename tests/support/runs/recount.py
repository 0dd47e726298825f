"""What a listener counts from the wire alone: the bytes, the public plans, MessagePack and JSON, and nothing of
hushgrid.
"""

import json
import math
from collections import Counter, defaultdict
from statistics import NormalDist
from typing import Any

import msgspec

#: Answers of a node that has sent so many messages among neighbours, in a run that was finished.
AMONG_NEIGHBOURS = {
    "dgd": lambda sent: sent, "extra": lambda sent: sent, "nids": lambda sent: sent - 1, "dpp2": lambda sent: sent // 2,
    "admm": lambda sent: sent, "dpadmm": lambda sent: sent, "dpladmm": lambda sent: sent, "madmm": lambda sent: sent,
    "radmm": lambda sent: (sent + 1) // 2, "mradmm": lambda sent: (sent + 1) // 2,
}  # fmt: skip
WALKS = ("recal", "iadmm", "wadmm")


class Recount:
    """What was said, and what it cost: `prices[node]` is one price an answer, in the mechanism's own measure."""

    def __init__(self) -> None:
        self.plans: dict[bytes, dict[str, Any]] = {}
        self.said: dict[tuple[bytes, str, str], set[tuple[int, int]]] = defaultdict(
            set
        )  #: (epoch, number) by run, node, kind

    def hear(self, topic: str, payload: bytes) -> None:
        _, _, _, kind, src, *_ = topic.split("/")
        if kind in ("state", "status", "run", "answer"):
            return
        run_id, epoch, number, _, body = msgspec.msgpack.decode(payload)
        what = body["type"]
        if what == "plan":
            self.plans[run_id] = json.loads(body["plan"])
        elif what == "baton.held" and body["done"]:
            self.said[run_id, src, "baton.token"].add((epoch, number))  # the last activation hands nothing on
        else:
            self.said[run_id, src, what].add((epoch, number))

    @property
    def prices(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        repeated = set()
        for run_id, plan in self.plans.items():
            privacy, algorithm, nodes = plan["privacy"], plan["algorithm"], nodes_of(plan)
            for node in nodes:
                answers, cap = self.answers(run_id, plan, node), cap_of(plan, node)
                if privacy["mode"] == "input":
                    question = (node, json.dumps(privacy, sort_keys=True))  # the data did not change in these tests
                    answers = 0 if question in repeated else min(answers, 1)
                    repeated |= {question} if answers else set()
                assert answers <= cap, (algorithm["name"], node)
                found[node] += [price(privacy, cap)] * answers
        return found

    def answers(self, run_id: bytes, plan: dict[str, Any], node: str) -> int:
        """Questions that this node's gate has answered in a finished run, repetitions counted."""
        name = plan["algorithm"]["name"]
        if name == "ladmm":
            return len(self.said[run_id, node, "ladmm.z"]) * int(plan["algorithm"]["local_updates"])
        if name == "consensus-admm":
            return len(self.said[run_id, node, "star.minimum"])
        if name in WALKS:
            return min(len(self.said[run_id, node, "baton.token"]), cap_of(plan, node))
        return AMONG_NEIGHBOURS[name](len(self.said[run_id, node, "neighbours.share"]))


def nodes_of(plan: dict[str, Any]) -> list[str]:
    problem = plan["problem"]
    return sorted(problem["zones"]) if problem["kind"] == "zones" else [f"n{i}" for i in range(len(problem["rows"]))]


def cap_of(plan: dict[str, Any], node: str) -> int:
    """Answers of this node that the plan's epsilon is for."""
    algorithm, privacy, problem = plan["algorithm"], plan["privacy"], plan["problem"]
    name, rounds = algorithm["name"], algorithm["rounds"]
    if name == "ladmm":
        return 1 if privacy["mode"] == "input" else rounds * algorithm["local_updates"]
    if name == "consensus-admm":
        return 1
    if name not in WALKS:
        return AMONG_NEIGHBOURS[name](rounds * (2 if name == "dpp2" else 1))
    walk = problem["route"] if isinstance(algorithm["walk"], str) else algorithm["walk"]
    i = nodes_of(plan).index(node)
    if not walk:
        caps = privacy["answers"]
        return int(caps if isinstance(caps, int) else caps[i])
    return Counter(walk[k % len(walk)] for k in range(rounds))[i]


def price(privacy: dict[str, Any], cap: int) -> float:
    """Epsilon of one Laplace answer, mu of one Gaussian answer: what `cap` of them may cost is the plan's epsilon."""
    epsilon, delta = privacy["epsilon"], privacy["delta"]
    if privacy["mechanism"] == "laplace":
        return epsilon / cap
    low, high = 0.0, 100.0
    cost = zcdp if privacy["accountant"] == "zcdp" else gdp
    for _ in range(100):
        low, high = (middle, high) if cost(middle := (low + high) / 2, delta) <= epsilon else (low, middle)
    return low / math.sqrt(cap)


def gdp(mu: float, delta: float) -> float:
    """epsilon of mu-GDP at delta (J. Dong, A. Roth, W. Su, 2019, corollary 2.13)."""
    phi = NormalDist().cdf
    low, high = 0.0, 1000.0
    for _ in range(100):
        e = (low + high) / 2
        passed = phi(mu / 2 - e / mu) - math.exp(min(e, 700.0)) * phi(-mu / 2 - e / mu) > delta
        low, high = (e, high) if passed else (low, e)
    return high


def zcdp(mu: float, delta: float) -> float:
    """epsilon of mu^2/2-zCDP at delta (C. Canonne, G. Kamath, T. Steinke, 2020, proposition 12), its minimum by
    search.
    """
    rho = mu * mu / 2

    def at(log_a: float) -> float:
        a = 1 + math.exp(log_a)
        return a * rho + math.log1p(-1 / a) + (math.log(1 / delta) - math.log(a)) / (a - 1)

    low, high = -20.0, 20.0
    for _ in range(200):
        one, two = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (low, two) if at(one) < at(two) else (one, high)
    return max(at((low + high) / 2), 0.0)


def agree(counted: list[float], ledger: list[tuple[str, float]]) -> None:
    """As many answers, each at the price counted; a grid makes an answer cheaper by at most 2^-9."""
    assert len(ledger) == len(counted)
    for (_, paid), asked in zip(sorted(ledger, key=lambda s: s[1]), sorted(counted), strict=True):
        assert asked * (1 - 2.0**-9) <= paid <= asked * (1 + 1e-9)


def zones(algorithm: dict[str, Any], privacy: dict[str, Any]) -> dict[str, Any]:
    return {
        "hushgrid": 1, "name": "recount", "problem": {"kind": "zones", "case": "case14", "zones": 3},
        "algorithm": {"name": "ladmm"} | algorithm,
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 20.0} | privacy,
        "run": {"record": "transcript"},
    }  # fmt: skip
