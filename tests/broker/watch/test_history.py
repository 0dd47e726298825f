"""The last runs of a fleet, as they follow from what its nodes say of themselves."""

from msgspec.structs import replace

from hushgrid.broker.watch.history import RUNS, History
from hushgrid.node.status import Interval, moment
from tests.support.status import PLAIN


def said(history, node, run, last, at, **more):
    return history.take(replace(PLAIN, node=node, run=f"{run:032x}", last=last, at=moment(at), **more))


def outcomes(history):
    return [(past.outcome, past.number) for past in history.runs]


def interval(number, outcome, at, cause=""):
    return Interval(number=number, outcome=outcome, cause=cause, at=moment(at))


def test_a_run_ends_at_each_node_as_the_node_says():
    history = History()
    assert said(history, "z1", 1, "done", 10)
    assert said(history, "z2", 1, "refused", 11)
    assert said(history, "z1", 2, "running", 20)
    assert [history.strip(name) for name in ("z1", "z2", "z3")] == ["dj", "r.", ".."]
    assert not said(history, "z2", 1, "refused", 21)  # nothing new


def test_what_stands_there_from_before_is_put_in_the_order_of_its_times():
    history = History()
    said(history, "z1", 3, "done", 300)
    said(history, "z2", 1, "stopped", 100)
    said(history, "z3", 2, "done", 200)
    assert [history.strip(name) for name in ("z1", "z2", "z3")] == ["..d", "s..", ".d."]


def test_an_interval_names_the_run_that_it_ended_with_and_one_without_a_run_stands_alone():
    history = History()
    said(history, "coordinator", 1, "running", 10, state="running")
    said(history, "coordinator", 1, "done", 20, interval=interval(1, "held", 20))
    said(history, "coordinator", 1, "done", 30, interval=interval(2, "missed", 30, "absent"))
    said(history, "coordinator", 2, "running", 40, state="running", interval=interval(2, "missed", 30, "absent"))
    assert outcomes(history) == [("held", 1), ("missed", 2), ("running", None)]
    assert [fact["cause"] for fact in history.facts()] == ["", "absent", ""]


def test_only_the_last_runs_are_remembered():
    history = History()
    for no in range(RUNS + 7):
        said(history, "z1", no, "done" if no < RUNS else "stopped", no)
    assert history.strip("z1") == "d" * (RUNS - 7) + "s" * 7
