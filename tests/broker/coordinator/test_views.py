"""What a coordinator shows of its run and of its answer: once a second, from messages alone, and never at the run's
cost.
"""

import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import asdict, replace

from hushgrid.broker.coordinator import interval_log
from hushgrid.broker.coordinator.status import EVERY_S, Views, answer_view
from hushgrid.broker.simulation import run
from hushgrid.kernels.types import Document
from hushgrid.node.config.coordinator import Continuous
from hushgrid.node.status import Interval
from hushgrid.node.views import AnswerView, RunView, decode
from tests.support.runs.continuous_fleet import Fleet, RowFleet, record, scenario
from tests.support.runs.day_fleet import DayFleet, shaped, small
from tests.support.runs.masked_runs import masked, summed
from tests.support.runs.walk_in_memory import Walk, setup

pytestmark = pytest.mark.runs

RUN, ANSWER = (f"hushgrid/1/continuous/{kind}/coordinator" for kind in ("run", "answer"))
STEP_S = 0.02  # of this clock, between two turns of the loop


class Wire(SimpleNamespace):
    """A connection that is up, and what was published on it, with the time."""

    def __init__(self) -> None:
        super().__init__(connected=True, connects=1, refused=[], now=0.0, published=[])

    def send(self, publications):
        self.published += [(self.now, *each) for each in publications]

    def views(self, topic):
        kind = RunView if topic == RUN else AnswerView
        return [(now, decode(kind, payload)) for now, name, payload, retain in self.published if name == topic]


def watched(fleet, wire=None):
    """One more interval of a fleet, its views, and its line."""
    wire, said = wire or Wire(), []
    views = Views(said.append, wall=lambda: 1.8e9 + wire.now)

    def turn(fleet):
        wire.now += STEP_S
        views(fleet.centre, wire, wire.now)

    row = fleet.interval(turn)
    turn(fleet)
    views.answered(fleet.centre, None, {"number": row["interval"], "outcome": row["outcome"]})
    turn(fleet)
    assert said == []
    return wire, row


def common(view):
    """A view without what every run has of its own."""
    return replace(view, run="0" * 32)


def test_a_run_is_shown_once_a_second_and_its_last_state_always(tmp_path):
    wire, row = watched(Fleet(tmp_path, scenario("consensus-admm", 200, None)))
    times, views = zip(*wire.views(RUN), strict=True)
    assert len(views) > 3
    assert all(after - before >= EVERY_S for before, after in pairwise(times[:-1]))
    assert [view.state for view in views] == ["joining", *["running"] * (len(views) - 2), "done"]
    assert (views[-1].round, views[-1].residual) == (row["rounds"], row["residual"])
    assert {view.run for view in views} == {row["run"]}
    assert all(set(view.asked) <= {"z1", "z2", "z3"} and view.asked_in_all == len(view.asked) for view in views)
    assert any(view.asked and view.since for view in views[:-1])
    assert {retain for *_, retain in wire.published} == {True}


def test_the_view_of_a_day_is_of_the_hour_that_its_plan_begins_with(tmp_path):
    fleet = DayFleet(tmp_path, small(tmp_path / "tables"))
    fleet.draws(shaped(fleet.setup, 0))
    fleet.interval()
    watched(fleet, wire := Wire())
    (_, view) = wire.views(ANSWER)[-1]
    figures = fleet.centre.answer()[0]
    assert view.served_mw == pytest.approx(figures["served_mw"][0])
    assert view.unserved_mw == pytest.approx(figures["unserved_mw"][0])
    assert view.prices == pytest.approx({int(bus): each[0] for bus, each in figures["prices"].items()}, abs=1e-6)
    assert view.gap == figures["gap"]
    assert set(view.tie_flows) == {"z1-z2"}


def test_the_view_of_a_dispatch_is_what_the_record_of_the_run_says(tmp_path):
    fleet = Fleet(tmp_path, scenario("consensus-admm", 200, None))
    wire, row = watched(fleet)
    ((_, view),) = wire.views(ANSWER)
    kept = record(fleet, row)
    assert (view.served_mw, view.unserved_mw, view.cost) == (kept["served_mw"], kept["unserved_mw"], kept["objective"])
    assert (view.gap, view.number, view.outcome, view.kind) == (kept["gap"], 1, "answer", "zones")
    assert {str(bus): price for bus, price in view.prices.items()} == kept["prices"]
    assert view.ac == kept["ac"]["status"]
    assert view.ac_violation is None
    table = [line.split(",") for line in next((tmp_path / "runs").glob("*-lines.csv")).read_text().splitlines()]
    ties = [dict(zip(table[0], line, strict=True)) for line in table[1:]]
    of_zone = sum(float(line["p_from"]) for line in ties if line["zones"] == "z1-z2")
    of_zone += sum(float(line["p_to"]) for line in ties if line["zones"] == "z2-z1")
    assert view.tie_flows["z1-z2"] == pytest.approx(of_zone, abs=0.01)


def test_the_verdict_is_that_of_result_json(tmp_path):
    setup = scenario("consensus-admm", 200, None)
    wire, _ = watched(Fleet(tmp_path, setup))
    assert wire.views(ANSWER)[0][1].verdict == run(setup.resolved).quality.verdict


def test_the_view_of_a_sum_that_only_masks_have_seen_holds_its_table_alone(tmp_path):
    fleet = RowFleet(tmp_path, summed(tmp_path / "rows"))
    wire, _ = watched(fleet)
    ((_, view),) = wire.views(ANSWER)
    plain = AnswerView(run=view.run, at=view.at, kind="statistics", outcome="answer", number=1)
    shown = {key for key, value in asdict(view).items() if value != getattr(plain, key)}
    assert shown <= {"verdict", "rounds", "residual", "columns", "table"}
    (table,) = (tmp_path / "runs").glob("*-sum.csv")
    header, *rows = [line.split(",") for line in table.read_text().splitlines()]
    assert list(view.columns) == header
    assert [[name, *map(repr, figures)] for name, *figures in view.table] == rows


def test_two_sets_of_data_with_the_same_answers_have_the_same_views(tmp_path):
    seen = []
    for moved in (1.0, 0.5):
        fleet = Fleet(tmp_path / str(moved), scenario("consensus-admm", 200, 5.0))
        fleet.interval()
        for zone in fleet.zones:  # other loads of the version about which the gate has answered
            fleet.loads[zone] = moved * fleet.loads[zone]
            fleet.hub.endpoints[zone].device = fleet._zone(zone)
        wire, row = watched(fleet)
        assert row["outcome"] == "answer"
        seen.append([common(view) for topic in (RUN, ANSWER) for _, view in wire.views(topic)])
    assert seen[0] == seen[1]


def test_a_broker_that_refuses_the_topics_gets_no_more_and_the_run_goes_on(tmp_path):
    wire = Wire()
    wire.refused = [(RUN, "Not authorized"), (ANSWER, "Not authorized")]
    _, row = watched(Fleet(tmp_path, scenario("consensus-admm", 200, None)), wire)
    assert (row["outcome"], wire.published) == ("answer", [])


def test_a_broker_that_was_away_gets_both_again(tmp_path):
    fleet, wire = Fleet(tmp_path, scenario("consensus-admm", 200, None)), Wire()
    views = Views(lambda line: None)
    fleet.interval()
    views.answered(fleet.centre, None)
    for now in (0.0, 5.0, 10.0):
        wire.connects += now == 10.0
        views(fleet.centre, wire, now)
    topics = [topic for _, topic, *_ in wire.published]
    assert (topics.count(RUN), topics.count(ANSWER)) == (2, 2)


@pytest.mark.parametrize("algorithm", [{}, {"momentum": 0.9}], ids=["fedavg", "with momentum"])
def test_a_run_of_rows_shows_the_error_on_held_out_rows_as_result_json_does(tmp_path, algorithm):
    raw = masked(tmp_path / "rows", algorithm={"variant": "none"} | algorithm)
    draw = np.random.default_rng(3)
    np.savez(tmp_path / "test.npz", A=draw.normal(size=(40, 5)), b=np.sign(draw.normal(size=40)))
    raw["problem"]["test"] = str(tmp_path / "test.npz")
    del raw["privacy"]
    fleet = RowFleet(tmp_path / "fleet", raw)
    fleet.interval()
    tests = fleet.rows.plan.kind.tests(fleet.rows.scenario.problem, fleet.rows.plan.problem)
    view = answer_view(fleet.centre, tests, 0.0)
    assert (view.test_error, view.verdict, view.kind) == (run(raw).test_error, None, "data")


def test_a_walk_shows_who_has_the_token_and_its_graph(tmp_path):
    walk, wire = Walk(tmp_path, setup(seed=11)), Wire()
    views = Views(lambda line: None)

    def over():
        wire.now += STEP_S
        views(walk.centre, wire, wire.now)
        return walk.centre.ending

    walk.hub.run(over)
    over()
    shown = [decode(RunView, payload) for *_, payload, _ in wire.published]
    nodes = walk.setup.plan.nodes
    assert {view.pattern for view in shown} == {"token"}
    assert all(view.holder in nodes and view.since for view in shown if view.state == "running")
    assert all(len(view.edges) == view.edges_in_all >= len(nodes) - 1 for view in shown)
    assert shown[-1].activation == walk.setup.plan.algorithm.rounds
    assert (shown[-1].state, shown[-1].round) == ("done", shown[-1].rounds)
    assert shown[-1].residual is None


# --- how many intervals have ended how ---


def test_intervals_are_counted_over_restarts_by_how_they_ended(tmp_path):
    fleet = Fleet(tmp_path, scenario("consensus-admm", 200, None), run=Continuous(every="15min"), quorum=2)
    fleet.interval()
    fleet.goes("z2")
    fleet.interval()
    last = fleet.intervals.last
    assert (last.number, last.outcome, last.counts) == (2, "held", {"answer": 1, "held": 1})
    assert list(last.held) == ["z2"]
    assert last.absent == ("z2",)
    again = fleet._wakes()
    assert again.last == last
    fleet.ledgers["coordinator"].keep_note(interval_log.LAST, b"of another form")
    of_table = interval_log.last(fleet.ledgers["coordinator"], tmp_path / "intervals.csv")
    assert replace(of_table, held={}) == replace(last, held={})


def test_an_interval_that_ends_twice_is_counted_once(tmp_path):
    notes: Document = {}
    ledger = SimpleNamespace(keep_note=notes.__setitem__, note=notes.get)
    row = {"interval": 1, "outcome": "missed", "cause": "silent", "ended": "2026-11-22T16:00:00Z"}
    row |= {"held": {}, "absent": [], "refused": []}
    once = interval_log.count(ledger, None, row)
    twice = interval_log.count(ledger, once, row | {"outcome": "answer", "cause": ""})
    assert (once.counts, twice.counts) == ({"silent": 1}, {"answer": 1})
    assert interval_log.last(ledger, tmp_path) == twice
    assert json.loads(notes[interval_log.LAST])["number"] == 1
    assert isinstance(twice, Interval)
