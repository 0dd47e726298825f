"""Non-interference through a real broker: with the answers' values held still, whatever two data sets make a fleet of
real endpoints say is the same. Times and repetitions are the network's and are not compared, nor are receipts."""

import time
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.patterns.neighbours import Iterate, Lack
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime import event_loop as serve
from hushgrid.node.runtime.member import Member
from hushgrid.node.wire import COORDINATOR, Custody, Envelope, Finished, Join, Plan, Topics
from tests.support.runs.background_run import held_still, tables, with_data
from tests.support.scenarios.guarded_scenarios import CASES, others

GIVE_UP_S = 60.0
#: Keys of a masked run are drawn in the order of the network's times: tests/broker/simulation/test_noninterference.py
#: holds them.
UNMASKED = [case for case, raw in CASES.items() if "masked" not in raw["privacy"]]
#: Of a ledger, what is no function of times. The coordinator's counts hold repetitions, a node's state what it was
#: told; the marks that a coordinator knows are those of the last births it heard, and a mark is a function of the
#: spends.
TIMELESS = ("spend", "answer")


def said(publication):
    """(topic, what) of a message: a step or a word of control; None of receipts and of who is there.

    A neighbour that lacks a message after a while asks for it, and alone is given what all have been sent.
    """
    if "/state/" in publication.topic:
        return None
    body = (e := wire.decode_envelope(publication.payload, wire.PLAN_LIMIT)).body
    if isinstance(body, Custody | Lack):
        return None
    if isinstance(body, Plan):  # marks stand in the order of the births' arrival
        body = replace(body, marks=dict(sorted(body.marks.items())))
    if isinstance(body, Join | Finished):  # what it has seen of others' marks is what had arrived
        body = replace(body, seen=())
    topic = publication.topic
    if isinstance(body, Iterate):
        _, src, _ = Topics("still").parse(topic)
        topic = Topics("still").all(src)
    return topic, wire.encode(Envelope(e.run, e.epoch, e.seq, None, body))


def listened(end, heard, logs):
    """The endpoint with all it says taken down."""
    for name in ("connected", "on_message", "on_tick"):
        method = getattr(end, name)

        def told(*arguments, method=method):
            out = method(*arguments)
            heard.update(m for p in out if (m := said(p)))
            return out

        setattr(end, name, told)
    # What is dropped has come twice, or late: the network's doing.
    end.log = lambda text: None if text.startswith("dropped") else logs.add((end.name, text))
    return end


def fleet_seen(monkeypatch, directory, url, raw, data=""):
    """What a fleet of this scenario over data of that name says and keeps, through the broker at `url`."""
    heard, logs, vectors, session = set(), set(), {}, serve.link_for
    with ExitStack() as stack:
        stack.enter_context(held_still(monkeypatch))
        setup = with_data(prepare(scenario_from(raw)), data)
        ledgers = {n: Ledger(directory / f"{n}.ledger", n) for n in (*setup.plan.nodes, COORDINATOR)}
        for ledger in ledgers.values():
            stack.enter_context(closing(ledger))
        source = setup.scenario.kind.source(setup.scenario.problem)
        ends = [
            Member("still", setup.device(n), ledgers[n], setup.budget, outcome=partial(kept_in, vectors, n))
            for n in setup.plan.nodes
        ]
        centre = coordinator("still", setup.plan, source, ledgers[COORDINATOR], wait_s=GIVE_UP_S, silent_s=GIVE_UP_S)
        pairs = [
            (listened(e, heard, logs), session(e, url, passing_id=f"{e.name}-{directory.name}"))
            for e in (*ends, centre)
        ]
        began = time.monotonic()
        try:
            serve.serve_all(pairs, lambda: centre.finished or time.monotonic() - began > GIVE_UP_S)
            centre.conclude()
        finally:
            for end, link in pairs:
                link.close(clear=end.retained, forget=True)
        assert centre.finished
        error = centre.error
        end = (error.exit_code, str(error)) if isinstance(error, HushgridError) else (0, centre.reason)
    kept = {k: v for n in ledgers for k, v in tables(directory / f"{n}.ledger").items() if k.split()[1] in TIMELESS}
    return {"said": sorted(heard), "logs": sorted(logs), "end": end, "outcomes": vectors} | kept


def kept_in(vectors, node, given, about):
    """What a device would write of its outcome."""
    vectors |= {(node, key): v.tobytes() for key, v in given.items() if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("case", UNMASKED)
def test_through_a_broker_the_same_answers_over_other_data_say_the_same(tmp_path, monkeypatch, any_broker, case):
    raw, found = CASES[case], {}
    for name in ["", *others(raw)][:: 3 if "radmm" in case else 2]:
        place = tmp_path / (name.replace(" ", "-") or "own")
        place.mkdir()
        found[name] = fleet_seen(monkeypatch, place, any_broker.url, raw, name)
    one = found[""]
    assert one["end"][0] == 0
    assert one["said"]
    assert one["outcomes"]
    for name, other in found.items():
        assert [what for what in one.keys() | other.keys() if one.get(what) != other.get(what)] == [], name
