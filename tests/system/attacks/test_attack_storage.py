"""Storage without a spend: plans with long names, refusals that repeat what they refuse, members that come and go.

The promise: at zero epsilon nobody fills a disk (at most 1 MB an hour), and nothing hostile reaches a log as it came.
"""

import time
from importlib.metadata import version

import pytest
import yaml

from hushgrid.node import wire
from hushgrid.node.wire import Birth, Capabilities, Mark
from tests.support.daemons.attacked_device import SCENARIO, Target, zone_config
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

SHARE = 1 << 17  #: bytes a liar may leave in an eighth of an hour: more than enough for the seconds of a test
EMPTY = 1 << 16  #: bytes of a ledger in which nothing stands


@pytest.fixture
def target(tmp_path, url, stack):
    made = Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1"))
    made.start()
    return made


def growth(target, liar, plans):
    """Bytes that a device's state and log have grown by once it has heard all of these plans. It ends.

    They come no faster than it takes them: a broker drops what it cannot deliver.
    """
    for k, plan in enumerate(plans):
        liar.announce(plan)
        if k % 100 == 99:
            liar.roll_call("z1")
    liar.roll_call("z1")
    target.daemon.end()
    assert target.account().answers == 0
    return target.stored - EMPTY, target.logged


HOSTILE = {
    "joined, with long names": (120, {"name": "x" * 250_000}),
    "refused, with a long name of their case": (120, {"problem.case": "x" * 250_000, "problem.digest": "other"}),
    "refused, short ones": (1200, {"privacy.epsilon": 6.0}),  # its owner allows 5 a run
    "joined, short ones": (1200, {}),
    "no plans at all": (1200, {"format": 2}),
}


@pytest.mark.parametrize("plans", HOSTILE)
def test_plans_without_a_spend_fill_no_disk(target, url, stack, show, plans):
    number, changes = HOSTILE[plans]
    liar = stack.enter_context(Liar(url, ["z1"]))
    plan = altered(honest_plan(SCENARIO), changes)
    stored, logged = growth(target, liar, [plan] * number)
    show(f"{number} plans, {plans}: {stored / 1e3:.0f} kB stored, {logged / 1e3:.0f} kB logged, no answer given")
    assert stored <= SHARE
    assert logged <= SHARE


def test_no_control_character_of_a_liar_reaches_a_log(target, url, stack, show):
    evil = "\x1b[2J\x07\r\nz1: forged\x9b\u202e"
    liar = stack.enter_context(Liar(url, ["z1"]))
    plan = honest_plan(SCENARIO)
    liar.joined(liar.announce(altered(plan, {"name": f"a {evil}"})), "z1")
    liar.joined(liar.announce(altered(plan, {"problem.case": evil, "problem.digest": evil})), "z1")
    run = liar.announce(plan)
    assert liar.joined(run, "z1")
    liar.finish(run, "z1", evil, evil)
    liar.progress(run, evil)
    liar.farewell(run, "z1", "stopped", evil)
    run = liar.announce(altered(plan, {"algorithm.name": evil}))
    assert not liar.joined(run, "z1")
    liar.publish(liar.topics.edge("coordinator", "z1"), evil.encode())
    assert liar.joined(liar.announce(plan), "z1")  # behind all of it
    target.daemon.end()
    said = target.daemon.log.read_bytes().decode()
    found = sorted({repr(c) for c in said if not (c.isprintable() or c == "\n")})
    forged = [line for line in said.split("\n") if line.startswith("z1: forged")]
    show(f"in its log: {', '.join(found) or 'nothing'}; {len(forged)} forged lines")
    assert found == []
    assert forged == []


FLAPS, MEMBERS = 40, 100


def test_a_member_that_comes_and_goes_does_not_fill_the_coordinators_disk(tmp_path, url, stack, show):
    """One enrolled node is born again and again, inside its access list; each time all are asked to join a new run."""
    scenario = {
        "hushgrid": 1, "name": "demo",
        "problem": {"kind": "logistic", "data": {"devices": {"features": 8, "rows": 200}}, "row_bound": 1.0},
        "network": {"kind": "ring", "nodes": MEMBERS},
        "algorithm": {"name": "recal", "rounds": 200, "walk": "hamiltonian"},
        "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 5.0},
    }  # fmt: skip
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    state, log = tmp_path / "state", tmp_path / "coordinator.log"
    config = {"fleet": "demo", "broker": url, "scenario": "scenario.yaml", "state": str(state)}
    (tmp_path / "coordinator.yaml").write_text(yaml.safe_dump(config))
    liar = stack.enter_context(Liar(url, [], name="n0", also=[wire.Topics("demo").all("coordinator")]))

    def born(i, session):
        facts = Capabilities(version("hushgrid"), ("recal",), ("laplace",), "data", "", 8)
        body = Birth(session, b"", Mark(f"n{i:015}".encode(), 0), facts)
        liar.publish(liar.topics.state(f"n{i}"), wire.encode(body), True)

    for i in range(MEMBERS):
        born(i, 1)
    coordinator = Daemon(log, [*HUSHGRID, "coordinator", str(tmp_path / "coordinator.yaml")], {})
    stack.callback(coordinator.kill)
    liar.wait(lambda: True if liar.heard else None, "first plan")
    deadline = time.monotonic() + 12.0
    session = 1
    while session < FLAPS and time.monotonic() < deadline:  # as often as the coordinator takes notice
        session += 1
        born(0, session)
        known = len(liar.heard)
        while len(liar.heard) == known and time.monotonic() < deadline:
            liar.pump(0.05)
    coordinator.end()
    stored = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    one = len(next(iter(liar.heard.values()))[0].payload)
    show(
        f"{session} births: {len(liar.heard)} plans of {one} bytes; the coordinator has stored {stored / 1e3:.0f} kB, "
        f"logged {log.stat().st_size / 1e3:.1f} kB"
    )
    assert stored <= EMPTY + 4 * one
    assert log.stat().st_size <= SHARE
