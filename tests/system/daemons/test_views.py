"""What a real coordinator shows to the identity `watch` of its run and of the answer, and what that costs the run."""

import csv
import time
from collections import Counter
from io import StringIO

import pytest

from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.views import AnswerView, RunView, decode
from hushgrid.node.wire import Topics
from tests.support.daemons import deployed_ring
from tests.support.daemons.deployed_fleet import PATIENCE, ROOT, ZONES, finishes_a_run, intervals, tried
from tests.support.daemons.deployed_fleet import until as until_intervals
from tests.support.daemons.status_rows import nodes, until

pytestmark = pytest.mark.mosquitto

EVERY = "run: {every: 4s}\n"


class Watch:
    """The identity `watch` on a fleet's broker."""

    def __init__(self, fleet, name="demo"):
        topics = Topics(name)
        self.kinds = {topics.run(): RunView, topics.answer(): AnswerView}
        self.link = MqttLink(fleet.url, "watch", username="watch", subscriptions=list(self.kinds), persistent=False)
        self.link.connect(PATIENCE)
        self.seen: list[tuple[float, object]] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()

    def wait_for(self, what):
        deadline = time.monotonic() + PATIENCE
        while not any(map(what, (view for _, view in self.seen))):
            assert time.monotonic() < deadline, self.seen
            self.seen += [(time.monotonic(), decode(self.kinds[m.topic], m.payload)) for m in self.link.poll(0.2)]
        return next(view for _, view in reversed(self.seen) if what(view))


def kinds(kind, **over):
    return lambda view: isinstance(view, kind) and all(getattr(view, key) == value for key, value in over.items())


def test_the_last_run_and_its_answer_stand_on_the_broker(tmp_path, mosquitto_program, stack):
    fleet = tried(tmp_path / "deploy", mosquitto_program, stack)
    finishes_a_run(fleet, [fleet.node(z) for z in ZONES])
    with Watch(fleet) as watch:  # it comes late: what it reads is what stands there
        run, answer = watch.wait_for(kinds(RunView)), watch.wait_for(kinds(AnswerView))
    assert (run.state, run.pattern, run.algorithm, run.nodes) == ("done", "star", "consensus-admm", 3)
    assert (answer.run, answer.kind, answer.outcome, answer.ac) == (run.run, "zones", "answer", "solved")
    assert (answer.rounds, answer.residual) == (run.round, run.residual)
    assert len(answer.prices) == 14
    assert set(answer.tie_flows) == {"z1-z2", "z1-z3", "z2-z3"}
    assert answer.served_mw > 0
    assert answer.ac_violation < 1e-4
    assert answer.verdict in ("solved", "agreed")
    tables = (fleet.state("coordinator") / "runs").glob("*-balance.csv")
    rows = list(csv.DictReader(StringIO(next(tables).read_text())))
    assert answer.served_mw == pytest.approx(sum(float(row["served_mw"]) for row in rows), abs=0.01)


def by_itself(fleet):
    """The coordinator of a fleet that makes one run after the other."""
    path = fleet.directory / "coordinator.yaml"
    path.write_text(path.read_text() + EVERY)
    for z in ZONES:
        fleet.edit(f"nodes/{z}.yaml", "epsilon: 20.0", "epsilon: 2000.0")
        fleet.node(z)
    return fleet.coordinator()


def test_a_fleet_that_runs_by_itself_shows_its_intervals_over_a_restart(tmp_path, mosquitto_program, stack):
    fleet = tried(tmp_path / "deploy", mosquitto_program, stack)
    coordinator = by_itself(fleet)
    with Watch(fleet) as watch:
        answer = watch.wait_for(kinds(AnswerView, outcome="answer"))
        assert answer.valid_until > answer.at
        assert answer.verdict in ("solved", "agreed")
        assert answer.number is not None
        watch.wait_for(kinds(RunView, run=answer.run, state="done"))
    assert coordinator.end() == 0
    before = len(intervals(fleet))
    again = fleet.coordinator()
    until_intervals(fleet, lambda rows: len(rows) > before)
    found = until(fleet, lambda found: (found["coordinator"]["interval"] or {}).get("number", 0) > before)
    assert again.end() == 0
    last = found["coordinator"]["interval"]
    rows = intervals(fleet)[: last["number"]]
    assert last["counts"] == Counter(row["cause"] or row["outcome"] for row in rows)
    assert last["outcome"] == rows[-1]["outcome"]
    assert {"epsilon", "lifetime", "data_age_s"} <= {key for key, value in found["z1"].items() if value is not None}


def test_under_older_access_lists_the_run_goes_on_with_a_line_a_topic(tmp_path, mosquitto_program, stack):
    def older(fleet):
        for topic in ("run", "answer"):
            fleet.edit("acl", f"topic write {ROOT}/{topic}/coordinator\n", "")

    fleet = tried(tmp_path / "deploy", mosquitto_program, stack, older)
    coordinator = by_itself(fleet)
    until_intervals(fleet, lambda rows: [row["outcome"] for row in rows].count("answer") >= 2)
    assert coordinator.end() == 0
    assert [
        coordinator.said.count(f"the broker refuses {ROOT}/{topic}/coordinator") for topic in ("run", "answer")
    ] == [
        1,
        1,
    ]


def test_a_walk_on_the_ring_is_shown_with_its_graph(tmp_path, mosquitto_program, stack):
    fleet = tried(tmp_path / "deploy", mosquitto_program, stack, make=deployed_ring.ring)
    deployed_ring.to_the_end(fleet)
    with Watch(fleet, "ring") as watch:
        run, answer = watch.wait_for(kinds(RunView)), watch.wait_for(kinds(AnswerView))
    assert (run.pattern, run.state, run.round) == ("token", "done", run.rounds)
    assert sorted(map(sorted, run.edges)) == [["n0", "n1"], ["n0", "n3"], ["n1", "n2"], ["n2", "n3"]]
    assert (answer.kind, answer.verdict, answer.table, answer.prices) == ("data", None, (), {})


def test_a_refusal_is_remembered_with_its_time_over_a_restart(tmp_path, mosquitto_program, stack):
    fleet = tried(tmp_path / "deploy", mosquitto_program, stack)
    fleet.edit("nodes/z1.yaml", "epsilon: 20.0", "epsilon: 4.0")
    first, *_ = [fleet.node(z) for z in ZONES]
    assert fleet.coordinator("--once").code() == 3
    refused = until(fleet, lambda found: found["z1"]["refused"])["z1"]
    assert (refused["refused"], refused["epsilon"], refused["lifetime"]) == ("budget", 4.0, 4.0)
    assert refused["refused_at"] is not None
    first.kill()
    fleet.node("z1")
    again = until(fleet, lambda found: found["z1"]["session"] == 2 and found["z1"]["at"])["z1"]
    assert (again["refused"], again["refused_at"]) == ("budget", refused["refused_at"])
    assert nodes(fleet)["z2"]["refused_at"] is None
