"""`hushgrid check DEVICE`: what its owner consents to, in words, from public numbers alone."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import yaml

from hushgrid.cli.owner.check import check
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.capacity import read_capacities
from tests.support.paths import DEPLOY


def checked(place, changes=()):
    """What is said of a device's file with other values at dotted paths (None: without the key), and without TLS."""
    raw = yaml.safe_load(place.read_text()) | {"broker": "mqtt://127.0.0.1"}
    raw.pop("tls", None)
    for path, value in dict(changes).items():
        here = raw
        *parents, last = path.split(".")
        for parent in parents:
            here = here[parent]
        here[last] = value
        if value is None:
            del here[last]
    place.write_text(yaml.safe_dump(raw))
    return check(place)


@pytest.fixture
def zone(tmp_path):
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    return tmp_path / "deploy" / "nodes" / "z1.yaml"


@pytest.fixture
def sensor(tmp_path):
    shutil.copytree(DEPLOY / "ring", tmp_path / "ring")
    np.savez(tmp_path / "ring" / "nodes" / "n0.npz", A=np.full((200, 8), 0.1234), b=np.where(np.arange(200) % 3, 1, -1))
    return tmp_path / "ring" / "nodes" / "n0.yaml"


def test_a_zone_s_owner_reads_what_is_hidden_in_mw_and_what_can_be_asked(zone):
    first, *lines = checked(zone).split("\n  ")
    assert first == "node z1 of fleet demo on mqtt://127.0.0.1: 5 buses of case14, budget epsilon 20"
    hidden, run, life, worst, answers, _ = lines
    assert answers == "answers zones: the loads of its 5 buses, p and q, each with noise, and what follows from them"
    assert "p or q of one bus, changed by at most 1 MW or MVAr (0.01 p.u. on a base of 100 MVA)" in hidden
    assert run.startswith("one run: consensus-admm; epsilon 5 at most: ")
    assert run.endswith("odds of at most 148 : 1 (e^5)")
    assert (
        "epsilon 20 over the life of the ledger, enough for 4 runs of epsilon 5: odds of at most 4.85e+08 : 1" in life
    )
    assert worst.endswith("everything else within its public ranges: when, how often, the steps")


def test_an_owner_of_customers_reads_what_one_of_them_may_move_in_mw_and_mvar(zone):
    change = {"pair": 0.01, "power_factor": 0.95}
    hidden = checked(zone, {"budget.adjacency": {"bounded-change": change}}).split("\n  ")[1]
    assert hidden == (
        "hidden: any one customer, p of one bus changed by at most 1 MW and q of the same bus by at most 0.3287 MVAr "
        "(0.01 and 0.003287 p.u. on a base of 100 MVA, power factor 0.95); k such customers count k times"
    )


def test_an_owner_of_contracts_reads_the_share_in_mw_and_how_many_entries_have_none(zone):
    rows = "".join(f"{bus},{20 * bus},{0 if bus > 2 else 5}\n" for bus in range(1, 15))
    (zone.parent / "capacity.csv").write_text(f"bus,p_mw,q_mvar\n{rows}")
    change = {"relative": 0.05, "of": "capacity.csv"}
    hidden = checked(zone, {"budget.adjacency": {"bounded-change": change}}).split("\n  ")[1]
    digest = read_capacities(zone.parent / "capacity.csv").digest
    assert hidden == (
        "hidden: any one load, p or q of one bus, changed by at most 5 % of its contracted capacity, here 0.25 to 5 "
        f"MW or MVAr (capacities of digest {digest[:12]}); 3 of 10 have none and count as no load; k such changes "
        "count k times"
    )


def test_without_a_limit_to_one_run_the_whole_budget_can_be_asked_at_once(zone):
    _, _, run, life, *_ = checked(zone, {"allow": None, "budget.epsilon": 30.0, "budget.delta": 1e-5}).split("\n  ")
    assert run.startswith(
        "one run: consensus-admm, ladmm; epsilon 30 at most (no allow.per_run: a single run may spend the budget): "
    )
    assert run.endswith("odds of at most e^30 : 1, but for a probability of about 1e-05")
    assert "enough for a single run: " in life


def test_a_limit_above_the_budget_limits_nothing_more(zone):
    _, _, run, *_ = checked(zone, {"allow.per_run.epsilon": 100.0}).split("\n  ")
    assert "epsilon 20 at most" in run


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            {"classes": 2},
            "labels: 2 classes; of a logistic problem by sign (above 0 or not), of softmax 0 or 1, whichever is nearer",
        ),
        ({"classes": 7}, "labels: classes 0 to 6; any other label is taken for the nearest of them"),
        ({"low": -2.5, "high": 9}, "labels: -2.5 to 9; any other label is taken for the nearer end"),
    ],
)
def test_an_owner_of_rows_reads_the_relation_and_the_range_of_the_labels(labels, text, sensor):
    _, hidden, said, run, _, worst, *_ = checked(sensor, {"labels": labels}).split("\n  ")
    assert hidden.startswith("hidden: any one of 200 records (a row and its label), replaced by any other")
    assert said == text
    assert run.startswith("one run: recal; epsilon 5 at most")
    assert worst.endswith("the steps, the clip")


@pytest.mark.parametrize(
    ("problem", "labels", "said"),
    [
        # 2 scale R/200 = .02 in L2 (softmax: sqrt 2 of it), sqrt 8 of it in L1 (softmax: twice that)
        (
            {"kind": "logistic", "scale": 1.0, "row_bound": 2.0},
            {"classes": 2},
            "counts 6 times under Laplace noise, 2 times under Gaussian",
        ),
        (
            {"kind": "softmax", "scale": 1.0, "row_bound": 2.0},
            {"classes": 2},
            "counts 12 times under Laplace noise, 3 times under Gaussian",
        ),
        (
            {"kind": "least-squares", "scale": 1.0, "row_bound": 2.0},
            {"low": 0, "high": 1},
            "may move it by more than any bound, and is then not hidden",
        ),
    ],
)
def test_under_bounded_change_an_owner_reads_what_one_record_counts(problem, labels, said, sensor):
    changes = {"problem": problem, "labels": labels, "budget.adjacency": {"bounded-change": 0.01}}
    hidden = checked(sensor, changes).split("\n  ")[1]
    assert "moves the gradient by at most 0.01 everywhere" in hidden
    assert f"({problem['kind']}, scale 1.0, row_bound 2.0); one record replaced {said}" in hidden


def test_no_number_of_the_rows_is_said(sensor):
    said = checked(sensor)
    path = sensor.parent / "n0.npz"
    np.savez(path, A=np.full((200, 8), -7.0), b=np.arange(200.0))
    assert checked(sensor) == said


# --- a budget that renews ---


def test_an_owner_reads_window_life_and_what_a_window_does_not_hide(zone):
    window = {"budget.window": "24h", "budget.lifetime": 400.0, "retention": "4h"}
    first, *lines = checked(zone, window).split("\n  ")
    assert first.endswith("budget epsilon 20 in any 24h of running time, epsilon 400 over its life")
    assert lines[2] == (
        "all runs: epsilon 20 in any 24h of running time, epsilon 400 over its life, enough for 4 runs of epsilon 5 a "
        "window: odds of at most 4.85e+08 : 1 (e^20)"
    )
    assert lines[3] == (
        "a window hides an event of at most 20h; each window of 24h begins anew, so a habit that is seen through many "
        "windows is not hidden: someone present for a year: epsilon 20 x 365 = 7300 (pure), and 400 at most"
    )


def test_a_window_without_a_limit_over_its_life_says_so(zone):
    assert (
        checked(zone, {"budget.window": "7d"})
        .split("\n")[0]
        .endswith("in any 7d of running time, no limit over its life")
    )


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("budget.period", "24h", "budget.period: found a period of the calendar, expected window: a sliding one"),
        ("budget.window", "1 day", "budget.window: found '1 day', expected a length of time with its unit: 30s, 15min"),
        ("budget.lifetime", 50.0, "budget: found .*, expected no lifetime without a window"),
        ("retention", "4h", "retention: found 4h, expected a budget with a window"),
    ],
)
def test_keys_of_a_window_that_are_wrong_are_one_line(zone, key, value, line):
    with pytest.raises(InputError, match=line):
        checked(zone, {key: value})


def test_data_of_a_day_are_not_hidden_by_a_window_of_a_day(zone):
    with pytest.raises(InputError, match="retention: found 24h, expected less than its window of 24h"):
        checked(zone, {"budget.window": "24h", "retention": "24h"})
