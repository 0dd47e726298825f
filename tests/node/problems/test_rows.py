"""A device's rows: what it says of a plan depends on the plan and on what its owner declares, never on a row or a
label.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec.structs import replace

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.kernels.problems.losses import LARGEST, Loss, Nonconvex, Objective, U, settled
from hushgrid.node.config.device import DeviceConfig, load_device
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.device import Rows, clamped, shortened
from hushgrid.node.problems.records.files import Shard
from hushgrid.node.problems.records.gate import LABEL_BOUND, RowsGate
from hushgrid.node.problems.records.section import DataPlan, DeclaredProblem, Labels
from hushgrid.node.schema.sections import Adjacency, Privacy, ReplaceOneRecord

KINDS = ("least-squares", "logistic", "softmax")
BOUNDS = st.sampled_from([1e-9, 0.5, 1.0, 1e6]) | st.floats(1e-9, 1e6)
M, Q = 4, 3


def data_plan(kind="logistic", *, classes=1, row_bound=1.0, rows=(M, M), features=Q, **objective):
    o = Objective(kind=kind, **objective)
    return DataPlan(
        objective=o, l1=0.0, l2=0.0, box=None, row_bound=row_bound, features=features, classes=classes, rows=list(rows),
        L=[1.0] * len(rows), edges=[(0, 1)], route=[], route_is="random", walk_seed=None,
    )  # fmt: skip


CLIP = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0))


def plan(*args, adjacency=CLIP, **keys):
    privacy = Privacy(adjacency=adjacency, epsilon=1.0)
    problem = data_plan(*args, **keys)
    return RunPlan(name="p", problem=problem, algorithm=recal.Params(rounds=4), privacy=privacy, stop=None)


@st.composite
def plans(draw):
    """What a coordinator could announce to two devices; the widths and numbers of rows are mostly right."""
    kind = draw(st.sampled_from(KINDS))
    return plan(
        kind, classes=draw(st.sampled_from([1, 2, 3, 5])), row_bound=draw(BOUNDS | st.none()),
        rows=(draw(st.sampled_from([M, M, M, 5])), M), features=draw(st.sampled_from([Q, Q, Q, 2])),
        scale=draw(st.sampled_from([1.0, 2.0, 1e6])), l2=draw(st.sampled_from([0.0, 0.1])),
        nonconvex=draw(st.sampled_from([None, Nonconvex(lam=0.1)])),
        adjacency=draw(st.sampled_from([CLIP, Adjacency(bounded_change=1e-9), Adjacency(bounded_change=1.0)])),
    )  # fmt: skip


labels = st.sampled_from([Labels(classes=2), Labels(classes=3), Labels(low=-1.0, high=1.0), Labels(low=-1e4, high=1e4)])
declared = st.none() | st.builds(
    DeclaredProblem,
    kind=st.sampled_from(KINDS),
    scale=st.sampled_from([1.0, 2.0]),
    row_bound=st.sampled_from([0.5, 1.0]),
)
entries = st.floats(-LARGEST, LARGEST) | st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-162, 1.0000000000000002, 1e150])
shards = st.builds(
    Shard, arrays(np.float64, (M, Q), elements=entries),
    arrays(np.float64, M, elements=st.floats(allow_nan=False, allow_infinity=False)),
)  # fmt: skip


def outcome(rows, p):
    """What the device says of a plan until its gate stands, and what is public of that gate."""
    try:
        rows.check(p)
        gate = RowsGate("n0", rows.loss(p.problem), p.terms, SystemNoise(), None)
    except HushgridError as error:
        return type(error), str(error)
    return gate.loss.size, gate.loss.rows, gate.lattice


@pytest.mark.runs
@given(plans(), labels, declared, shards, shards)
def test_what_a_device_says_of_a_plan_is_the_same_whatever_its_rows_and_labels_are(p, of, own, one, other):
    assert outcome(Rows("n0", one, of, own), p) == outcome(Rows("n0", other, of, own), p)


FITTING = [
    (Labels(classes=2), "logistic", 1), (Labels(classes=2), "softmax", 2), (Labels(classes=5), "softmax", 5),
    (Labels(low=-1.0, high=1.0), "least-squares", 1), (Labels(low=-1e4, high=1e4), "least-squares", 1),
]  # fmt: skip


@given(st.sampled_from(FITTING), BOUNDS, shards)
def test_a_plan_that_fits_the_declaration_is_never_refused_for_its_data(fitting, bound, shard):
    of, kind, classes = fitting
    rows, p = Rows("n0", shard, of), plan(kind, classes=classes, row_bound=bound)
    rows.check(p)
    loss = rows.loss(p.problem)
    assert np.all(loss.row_norms(2) <= bound * (1 + (Q + 4) * U))
    assert np.all(np.abs(loss.b) <= LABEL_BOUND)


SHARD = Shard(np.eye(M, Q), np.arange(M) - 1.0)


@pytest.mark.parametrize(
    ("of", "p", "line"),
    [
        (Labels(classes=2), plan(), None),
        (Labels(classes=2), plan("softmax", classes=2), None),
        (Labels(classes=2), plan("softmax", classes=3), "found a plan for softmax of 3 classes, expected one for "
                                                        "labels of 2 classes"),
        (Labels(classes=2), plan("least-squares"), "found a plan for least-squares, expected one for labels of 2 "
                                                   "classes"),
        (Labels(classes=3), plan(), "found a plan for logistic, expected one for labels of 3 classes"),
        (Labels(classes=3), plan("softmax", classes=3), None),
        (Labels(low=-5.0, high=5.0), plan("least-squares"), None),
        (Labels(low=-5.0, high=5.0), plan(), "found a plan for logistic, expected one for labels of -5 to 5"),
    ],
)  # fmt: skip
def test_a_plan_for_other_labels_than_the_declared_is_refused(of, p, line):
    rows = Rows("n0", SHARD, of)
    if line is None:
        rows.check(p)
    else:
        with pytest.raises(InputError) as caught:
            rows.check(p)
        assert str(caught.value) == f"n0: {line}"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"scale": 1e7}, "logistic, scale 10000000.0, row_bound 1.0"),
        ({"scale": 0.5}, "logistic, scale 0.5, row_bound 1.0"),
        ({"row_bound": 2.0}, "logistic, scale 1.0, row_bound 2.0"),
        ({"row_bound": None}, "logistic, scale 1.0, row_bound None"),
        ({"kind": "softmax", "classes": 2}, "softmax, scale 1.0, row_bound 1.0"),
    ],
)
def test_a_plan_that_gives_the_unit_another_meaning_is_refused_by_public_numbers(changes, found):
    own = DeclaredProblem(kind="logistic", scale=1.0, row_bound=1.0)
    rows, p = Rows("n0", SHARD, Labels(classes=2), own), plan(**{"kind": "logistic"} | changes)
    if found is None:
        rows.check(p)
    else:
        with pytest.raises(InputError) as caught:
            rows.check(p)
        expected = "expected its own logistic, scale 1.0, row_bound 1.0"
        assert str(caught.value) == f"n0: found a plan for {found}, {expected}"


def test_labels_are_moved_into_their_declared_range():
    b = np.array([-1e300, -1.0, 0.0, 0.3, 1.0, 1.6, 7.0, 1e300])
    assert clamped(b, Labels(classes=2), "logistic").tolist() == [-1, -1, -1, 1, 1, 1, 1, 1]
    assert clamped(b, Labels(classes=2), "softmax").tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert clamped(b, Labels(classes=4), "softmax").tolist() == [0, 0, 0, 0, 1, 2, 3, 3]
    assert clamped(b, Labels(low=-0.5, high=2.0), "least-squares").tolist() == [-0.5, -0.5, 0, 0.3, 1, 1.6, 2, 2]


def test_the_largest_label_that_can_be_declared_is_the_gates_bound(tmp_path):
    Labels(low=-LABEL_BOUND, high=LABEL_BOUND)
    text = (
        "{node: n, fleet: f, broker: 'mqtt://localhost', state: s, data: d.npz, labels: {low: 0, high: %r}, "
        "budget: {epsilon: 1, adjacency: {replace-one-record: {clip: 1}}}}"
    )
    (tmp_path / "n.yaml").write_text(text % LABEL_BOUND)
    assert load_device(tmp_path / "n.yaml").labels.high == LABEL_BOUND
    (tmp_path / "n.yaml").write_text(text % np.nextafter(LABEL_BOUND, inf).item())
    with pytest.raises(InputError, match=r"labels\.high: found"):
        load_device(tmp_path / "n.yaml")


@given(arrays(np.float64, (M, Q), elements=entries), BOUNDS)
def test_no_row_is_longer_than_the_bound_and_one_within_it_keeps_its_bits(A, R):
    short = shortened(A, R)
    loss = Loss(Objective(kind="least-squares"), short, np.zeros(M), row_bound=R)  # refuses a row beyond R
    within = Loss(loss.objective, A, np.zeros(M)).row_norms(2) < R * (1 - (2 * Q + 8) * U)
    assert np.array_equal(short[within], settled(A)[within])


def test_a_device_reads_its_rows_once_and_says_at_its_start_what_no_run_could_take(tmp_path):
    path = tmp_path / "n0.npz"
    config = DeviceConfig(
        node="n0", fleet="f", broker="mqtt://localhost", state="s", data=str(path), labels=Labels(classes=2),
        budget=Privacy(adjacency=Adjacency(), epsilon=1.0).budget,
    )  # fmt: skip
    np.savez(path, A=np.full((2, 3), 1e150), b=[1e300, 0.5])
    assert config.kind.device(config, "n0.yaml").labels == config.labels
    np.savez(path, A=np.full((2, 3), 1e151), b=[1.0, -1.0])
    with pytest.raises(InputError) as caught:
        config.kind.device(config, "n0.yaml")
    assert str(caught.value) == f"{path}: A: found a number beyond 1e+150, expected smaller ones"


def test_a_simulated_node_has_no_declaration_and_takes_any_plan_of_its_program():
    rows = Rows("n1", SHARD)
    p = plan("softmax", classes=4, features=Q)
    rows.check(p)
    rows.check(replace(p, problem=data_plan("least-squares")))
