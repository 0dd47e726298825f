"""A walk in this process over real members, ledgers and gates, and a memory broker that nodes can be cut off from.

And what must hold of a walk whatever happened to it.
"""

from __future__ import annotations

import numpy as np

from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.problems.base import Finished
from hushgrid.broker.simulation.recorders.token import walk_rows
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.patterns.token import Token, superseded
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.zone_fleet import World
from tests.support.scenarios import record_scenarios

SILENT_S, WAIT_S = 3.0, 20.0  # virtual seconds
U = 2.0**-53
CRASH = {"killed before": False, "killed after": True}
AMID = {"between": None, "told": True, "untold": False}


def setup(*args, **over):
    return prepare(scenario_from(record_scenarios.scenario(*args, **{"run.record": "trajectory"} | over)))


class Air(MemoryBroker):
    """Nothing reaches a node that is `away`, and nothing of it is heard. Time passes while messages are on their
    way.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.away, self.tokens = set(), 0
        self.moment = lambda delivery: None  #: who is delivered to is cut off "before", amid or "after" it, or killed

    def publish(self, publications):
        super().publish([p for p in publications if p.topic.split("/")[4] not in self.away])

    def _deliver(self, delivery):
        if token_of(delivery) != (-1, -1):
            self.tokens += 1
            if self.tokens % 3 == 0:
                self.tick()
        if delivery.dst in self.away:
            return
        moment = self.moment(delivery)
        if moment in CRASH:  # as a kill -9: where it had taken it, nothing of that is heard before it is back
            if CRASH[moment]:
                self.endpoints[delivery.dst].on_message(delivery.topic, delivery.payload)
            self.endpoints[delivery.dst] = self.rebuild(delivery.dst)
            return self._connect(delivery.dst)
        if moment in AMID:  # it takes it, and of that nothing is heard, or only by the coordinator, or by all others
            out = self.endpoints[delivery.dst].on_message(delivery.topic, delivery.payload)
            self.publish([p for p in out if AMID[moment] == p.topic.endswith(COORDINATOR)])
        elif moment != "before":
            super()._deliver(delivery)
        if moment:
            self.away.add(delivery.dst)

    def back(self, name):
        if name in self.away:
            self.away.remove(name)
            self._connect(name)


class Walk(World):
    """n0, n1, ... and a coordinator that suspects after SILENT_S."""

    def __init__(self, directory, setup, *, broker=Air, **options):
        self.place, self.traces = directory / "trace", {}
        self.place.mkdir(parents=True)
        super().__init__(directory, setup, broker=broker, **{"silent_s": SILENT_S, "wait_s": WAIT_S} | options)

    def member(self, name, ledger, observe=None):
        if name not in self.traces:
            self.traces[name] = self.setup.trace(name, self.place)
        return super().member(name, ledger, self.traces[name])

    def restart(self, name):
        """As after a kill -9."""
        self.hub.endpoints[name] = self.build(name)
        self.hub._connect(name)

    @property
    def watch(self):
        return self.centre.monitor.state

    def states(self):
        return {name: state_of(self.ledgers[name], self.setup) for name in self.setup.plan.nodes}

    def undone(self, name):
        """Steps of a node that were superseded."""
        algorithm = self.setup.plan.algorithm
        steps = walk_rows(self.place, self.setup.public.size * (len(algorithm.token) + len(algorithm.recorded)))[1]
        return int(np.sum(steps[:, 1] == index(name)))

    def collect(self):
        """What `hushgrid run` would leave."""
        run = self.ledgers[COORDINATOR].runs.last()
        spent = {
            name: {"claimed": None, "spent": {"epsilon": 0.0, "delta": 0.0}, "ledger": None, "left": None}
            for name in self.setup.plan.nodes
        }
        return self.setup.collect(
            Finished(
                trace=self.place,
                travelled=[],
                centre=run.state,
                stopped_because=self.centre.reason,
                transport="memory",
                broker="memory",
                wall_s=0.0,
                ledgers_kept=True,
                per_node=spent,
                transcript=None,
            )
        )


def state_of(ledger, setup):
    """A node's last state, as its ledger has it."""
    kind = recal.AgentState if setup.plan.algorithm.name == "recal" else iadmm.AgentState
    return wire.decode_state(kind, wire.decode_state(Stored, ledger.runs.last().state).machine)


def token_of(delivery):
    """(hop, epoch) of a token that is delivered, else (-1, -1)."""
    if "/edge/" in delivery.topic and delivery.dst != COORDINATOR:
        envelope = wire.decode_envelope(delivery.payload, 1 << 20)
        if isinstance(envelope.body, Token):
            return envelope.seq, envelope.body.epoch
    return -1, -1


def assert_one_token(states):
    """The walk's end is at one node, and all other copies of the token are of earlier activations or superseded."""
    fences = max((s.known for s in states.values()), key=len)
    standing = {name: s for name, s in states.items() if s.t and not superseded(s.epoch, s.t - 1, fences)}
    ends = [name for name, s in standing.items() if s.done is not None]
    assert len(ends) == 1
    end = standing[ends[0]]
    assert all(s.t < end.t for name, s in standing.items() if name != ends[0])
    return end


def assert_conserved(result, params, states=None):
    """u = sum_i lambda_i, or N z = sum_i (x_i - y_i/rho), after every activation that stands, over the nodes in the
    token;

    and as the ledgers have it. These are all nodes until a recount ends, then those that its tour has passed, and who
    issued its first token.
    Rounding, U = 2^-53, M the largest entry: u + (lambda+ - lambda) errs by 3 U M, K times, and a sum of n by n^2 U M;
    N (z + (a+ - a)/N), a = x - y/rho, by (14 + N) U M, K times.
    """
    t = result.trajectory
    n, K = result.nodes, len(t["active"])
    if "u" in t:
        token, own, values = t["u"], t["lam"], (t["u"], t["lam"])
        room = 3 * K + n * n
    else:
        token, own, values = t["z"], t["x"] - t["y"] / params.rho, (t["z"], t["x"], t["y"] / params.rho)
        room = (14 + n) * K + n * n
    room *= U * max(float(np.max(np.abs(v))) for v in values)
    held, toured = np.zeros((n, token.shape[1])), t.get("recount", np.zeros(K, dtype=bool))
    nodes = [f"n{i}" for i in range(n)]

    def fits(kept, k):
        total = token[k + 1] * (1 if "u" in t else len(kept))
        return np.max(np.abs(held[list(kept)].sum(axis=0) - total)) <= room

    def counted(k):
        """The nodes of the tour that ended with activation k. One that was begun before, around others, may precede
        it.
        """
        first = next((j for j in range(k, -1, -1) if not toured[j]), 0)
        return next(some for j in range(first, k) if fits(some := sorted(set(t["active"][j : k + 1].tolist())), k))

    kept = range(n)
    for k, i in enumerate(t["active"]):
        if toured[k] and ((token[k + 1] != token[k]).any() or not toured[k + 1 : k + 2].all()):
            kept = counted(k)
        if not toured[k]:
            held[i] = own[k]
        assert fits(kept, k), k
    assert {nodes[i] for i in kept if held[i].any() or "z" in t} <= set(result.solved) <= {nodes[i] for i in kept}
    if states is None:
        return
    fences = max((s.known for s in states.values()), key=len)
    for i, s in enumerate(states.values()):
        undone = s.t and superseded(s.epoch, s.t - 1, fences)
        value = s.before if undone else (s.y, s.lam) if "u" in t else (s.x, s.y)
        assert ((value[1] if "u" in t else value[0] - value[1] / params.rho) == held[i]).all()
