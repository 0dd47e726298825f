"""Which questions a device answers: of the kind that its owner declares, of its owner's list, or of its ledger's
birth.
"""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import yaml

from hushgrid.cli.owner.check import check
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.node.config.device import load_device
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_schema import MODELS
from hushgrid.node.problems.records.device import Rows
from hushgrid.node.problems.records.files import Shard
from hushgrid.node.problems.records.section import DeclaredProblem, Labels
from hushgrid.node.problems.registry import TAGS
from hushgrid.node.schema.sections import Adjacency, Allow, AllowedProblem, Budget, ReplaceOneRecord
from tests.support import paths

M, Q = 30, 3
ROWS = Shard(np.full((M, Q), 0.1), np.ones(M))
EDGES = (-2.0, 0.0, 2.0)
REPLACED = {"replace-one-record": {"clip": 1.0}}
QUESTIONS = {
    "logistic": {"kind": "logistic", "row_bound": 1.0},
    "histogram": {"kind": "histogram", "column": Q, "edges": [*EDGES]},
    "total": {"kind": "total", "columns": [0, 2]},
    "mean": {"kind": "mean"},
    "gram": {"kind": "gram"},
}


def plan_of(kind, **over):
    raw = {
        "hushgrid": 1,
        "name": "asked",
        "algorithm": {"name": "sum"},
        "problem": QUESTIONS[kind] | over | {"data": {"devices": {"features": Q, "rows": M}, "nodes": 3}},
        "privacy": {"mechanism": "gaussian", "epsilon": 1.0, "delta": 1e-5, "adjacency": REPLACED},
    }
    if kind == "logistic":
        raw["algorithm"] = {"name": "fedavg", "rounds": 2, "step_size": 1.0}
    scenario = scenario_from(raw, "s")
    return make_plan(scenario, scenario.kind.public(scenario, "s"))


@pytest.fixture(scope="module")
def plans():
    return {kind: plan_of(kind) for kind in QUESTIONS}


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as opened:
        yield opened


def admit(plan, allow, ledger):
    """Whether the owner lets the device n0 take part; Refused if not."""
    budget = Budget(epsilon=9.0, delta=1e-5, adjacency=Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0)))
    terms = plan.terms_of("n0")
    BudgetCheck("n0", ledger, b"r" * 16, plan.algorithm, terms, budget, allow, plan.question, simulated=False).admit(
        terms.answers
    )


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_declared_problem_refuses_every_other_kind(plans, kind):
    """A histogram of its labels was answered by a device that is declared for a logistic model, at its whole budget."""
    device = Rows("n0", ROWS, Labels(classes=2), DeclaredProblem(kind="logistic", scale=1.0, row_bound=1.0))
    if kind == "logistic":
        device.check(plans[kind])
        return
    with pytest.raises(
        InputError, match=f"n0: found a plan for {kind} of column.*, expected one for its own logistic, scale 1.0"
    ):
        device.check(plans[kind])
    Rows("n0", ROWS, Labels(classes=2)).check(plans[kind])


@pytest.mark.parametrize(
    ("entry", "answered"),
    [
        ({"kind": "logistic"}, {"logistic"}),
        ({"kind": "histogram"}, {"histogram"}),
        ({"kind": "histogram", "column": Q, "edges": EDGES}, {"histogram"}),
        ({"kind": "histogram", "columns": (0, Q)}, {"histogram"}),
        ({"kind": "histogram", "column": 0}, set()),
        ({"kind": "histogram", "edges": (-2.0, 0.0, 1.0, 2.0)}, set()),  # finer ones tell more
        ({"kind": "total", "columns": (0, 1, 2)}, {"total"}),
        ({"kind": "total", "columns": (0, 1)}, set()),
        ({"kind": "gram", "columns": (0, 1, 2)}, set()),  # the label is column 3
        ({"kind": "gram", "columns": (0, 1, 2, Q)}, {"gram"}),
    ],
)
def test_a_list_of_questions_is_the_one_list(plans, ledger, entry, answered):
    allow = Allow(problems=(AllowedProblem(**entry),))
    passed = set()
    for kind, plan in plans.items():
        if kind in answered:
            admit(plan, allow, ledger)
            passed.add(kind)
            continue
        with pytest.raises(Refused, match=f"n0: asked for {kind}.*, its owner allows {entry['kind']}") as caught:
            admit(plan, allow, ledger)
        assert caught.value.refused_by == "problem"
    assert passed == answered


def test_an_empty_list_answers_nothing(plans, ledger):
    for plan in plans.values():
        with pytest.raises(Refused, match="its owner allows no question"):
            admit(plan, Allow(problems=()), ledger)


# --- without a list ---


def test_a_ledger_keeps_the_kinds_that_there_were_when_it_was_born(tmp_path, plans):
    """A newer program brings a new kind: a device of an older ledger does not answer it until its owner names it."""
    older = tuple(kind for kind in TAGS if kind != "histogram")
    path = tmp_path / "n0.ledger"
    with closing(Ledger(path, "n0")) as ledger:
        assert ledger.born_with(older) is None
    with closing(Ledger(path, "n0")) as ledger:
        ledger.born_with(tuple(TAGS))  # as at each start
        assert ledger.kinds_at_birth == older
        admit(plans["mean"], Allow(), ledger)
        with pytest.raises(
            Refused, match="n0: asked for histogram of column 3, 3 edges, a kind that there was not when its"
        ):
            admit(plans["histogram"], Allow(), ledger)
        admit(plans["histogram"], Allow(problems=(AllowedProblem(kind="histogram"),)), ledger)
    with closing(Ledger(tmp_path / "new.ledger", "n0")) as ledger:
        ledger.born_with(tuple(TAGS))
        admit(plans["histogram"], Allow(), ledger)


def test_a_ledger_of_release_0_1_0_has_the_kinds_of_its_time(tmp_path, plans):
    path = tmp_path / "n0.ledger"
    shutil.copy(paths.VECTORS / "ledger-before-the-rooms.ledger", path)
    with closing(sqlite3.connect(path)) as db:  # with all of its budget left
        db.execute("DELETE FROM spend")
        db.commit()
    with closing(Ledger(path, "n0")) as ledger:
        assert ledger.kinds_at_birth == MODELS
        admit(plans["logistic"], Allow(), ledger)
        with pytest.raises(Refused, match="a kind that there was not when its ledger was born"):
            admit(plans["gram"], Allow(), ledger)
    with closing(Ledger(path, "n0")) as ledger:  # and keeps them
        ledger.born_with(("quantile",))
        assert ledger.kinds_at_birth == MODELS
        assert ledger.verify() == []


# --- the owner's file ---


def device(place, **over):
    np.savez(place / "rows.npz", A=ROWS.A, b=ROWS.b)
    config = {
        "node": "n0",
        "fleet": "f",
        "broker": "mqtt://127.0.0.1",
        "state": str(place / "state"),
        "data": "rows.npz",
        "labels": {"classes": 2},
        "budget": {"epsilon": 1.0, "delta": 1e-5, "adjacency": REPLACED},
    }
    (place / "n0.yaml").write_text(yaml.safe_dump(config | over))
    return place / "n0.yaml"


DECLARED = {"kind": "logistic", "scale": 1.0, "row_bound": 1.0}


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"problems": [{"kind": "quantile"}]}, r"allow.problems\[0\].kind: found quantile, expected one of "),
        ({"problems": [{"kind": "zones"}]}, r"allow.problems\[0\].kind: found zones, expected one of "),
        (
            {"problems": [{"kind": "mean"}, {"kind": "softmax", "columns": [1]}]},
            r"allow.problems\[1\].columns: found 1 numbers, expected none",
        ),
        (
            {"problems": [{"kind": "least-squares"}]},
            r"allow.problems\[0\].kind: found least-squares, expected one for labels",
        ),
        (
            {"problems": [{"kind": "gram", "edges": [0, 1]}]},
            r"allow.problems\[0\].edges: found 2 numbers, expected none \(gram",
        ),
        ({"problems": [{"kind": "total", "column": 1, "columns": [1]}]}, "expected one of column and columns"),
        ({"problems": [{"kind": "mean", "scale": 1}]}, r"allow.problems\[0\].scale: unknown key"),
        (
            {"problems": [{"kind": "mean"}], "declared": True},
            r"allow.problems\[0\].kind: found mean, expected logistic, as problem",
        ),
    ],
)
def test_a_wrong_list_is_one_line(tmp_path, over, line):
    more = {"problem": DECLARED} if over.pop("declared", False) else {}
    with pytest.raises(InputError, match=line) as caught:
        load_device(device(tmp_path, allow=over, **more))
    assert "\n" not in str(caught.value)


def answers(file):
    return [line for line in check(file).split("\n  ") if line.startswith("answers ")]


def test_check_prints_each_question_and_what_it_may_tell(tmp_path):
    expected = [f"answers {kind}" for kind in ("logistic", "softmax", *STATISTICS)]
    assert [line.split(":")[0] for line in answers(device(tmp_path))] == expected
    assert answers(device(tmp_path, problem=DECLARED)) == [
        "answers logistic: gradients or minimisers of a model of the label by 3 features: how these go together in "
        "its 30 records"
    ]
    problems = [QUESTIONS["histogram"], {"kind": "total", "columns": [0, 2]}, {"kind": "logistic"}]
    assert answers(device(tmp_path, allow={"algorithms": ["sum"], "problems": problems})) == [
        "answers histogram: how many of its 30 records lie in each bin of -2 to 2, by the label",
        "answers total: the sum over its 30 records of column 0, column 2",
    ]
    nothing = "answers nothing: no question of allow.problems is one of an algorithm that it allows"
    assert answers(device(tmp_path, allow={"problems": []})) == [nothing]


def test_check_reads_the_kinds_of_the_devices_ledger_and_changes_nothing(tmp_path):
    path = tmp_path / "state" / "n0.ledger"
    with closing(Ledger(path, "n0")) as ledger:
        ledger.born_with(MODELS)
    before = path.read_bytes(), path.stat().st_mtime_ns
    said = [line.split(":")[0] for line in answers(device(tmp_path))]
    assert said == ["answers logistic", "answers softmax"]
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)
