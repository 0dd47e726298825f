"""Rounds among neighbours by scenario: their bits on every transport, and what a run leaves."""

import csv
import json
from contextlib import closing

import numpy as np
import pytest

from hushgrid.broker.report.build import build
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.simulation.setup import prepare
from hushgrid.cli.main import main
from hushgrid.kernels.algorithms.base import answers_in
from hushgrid.kernels.algorithms.registry import ALGORITHMS as REGISTERED
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.problems.records.data import load
from hushgrid.node.runtime.member import Member
from tests.support.devices.zone_fleet import World
from tests.support.runs import background_run
from tests.support.runs.private_traces import left_with, other_rows
from tests.support.scenarios.neighbour_scenarios import ALGORITHMS, ROUNDS, scenario
from tests.support.scenarios.record_scenarios import NOT_PRIVATE

#: Gate answers of each node in rounds 1, 2, ...
ANSWERED = {
    name: np.diff(
        [answers_in(prepare(scenario_from(scenario(name))).plan.algorithm, k) for k in range(1, ROUNDS + 1)], prepend=0
    ).tolist()
    for name in ALGORITHMS
}
PUBLISHED = {"variant": "published", "eta": 0.5, "decay": 0.9, "u_w": 0.1, "u_e": 0.1}
TRAJECTORY = {"run.record": "trajectory"}


@pytest.fixture(scope="module")
def quiet():
    """Every algorithm's run, seeded, through memory."""
    return {name: run(scenario(name, over=TRAJECTORY, seed=3)) for name in ALGORITHMS}


# --- the same bits ---


@pytest.mark.runs
@pytest.mark.parametrize("name", ALGORITHMS)
def test_faults_change_no_bit_of_any_algorithm(quiet, name):
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.03, "seed": 1}
    disturbed = run(scenario(name, over=TRAJECTORY | {"run.faults": faults}, seed=3))
    background_run.assert_same_bits(quiet[name], disturbed)
    for key in ("messages", "bytes", "noise_l1_expected", "epsilon_n0"):
        assert disturbed.history[key] == quiet[name].history[key]


# --- a crash between a step's commit and its row ---


class Killed(BaseException):
    """A node's process has ended here."""


class Air(MemoryBroker):
    def _deliver(self, delivery):
        try:
            super()._deliver(delivery)
        except Killed:
            self.endpoints[delivery.dst] = self.rebuild(delivery.dst)
            self._connect(delivery.dst)


class Rounds(World):
    """Nodes that are killed once each, when a step is committed and not taken down: at these (node, step)."""

    def __init__(self, directory, setup, killed=()):
        self.place, self.killed = directory / "trace", set(killed)
        self.place.mkdir(parents=True)
        self.traces = {name: setup.trace(name, self.place) for name in setup.plan.nodes}
        super().__init__(directory, setup, broker=Air)

    def member(self, name, ledger):
        def observe(driver, fresh):
            step = name, driver.machine.steps
            if fresh and step in self.killed:
                self.killed.remove(step)
                raise Killed
            self.traces[name](driver, fresh)

        return super().member(name, ledger, observe)

    def left(self):
        """Every node's rows: (noise, the rest)."""
        self.run()
        assert not self.killed
        for trace in self.traces.values():
            trace.close()
        self.close()
        found = [np.fromfile(self.place / f"{name}.trace").reshape(-1, 3 + 6 + 3) for name in self.setup.plan.nodes]
        return np.array(found)[:, :, 2], np.delete(found, 2, axis=2)


def test_a_step_that_was_committed_and_not_taken_down_is_taken_down_after_the_restart(tmp_path):
    setup = prepare(scenario_from(scenario("dpp2", seed=7)))
    killed = [("n0", 0), ("n1", 5), ("n2", 13), ("n3", 2 * ROUNDS)]
    noise, rest = Rounds(tmp_path / "quiet", setup).left()
    noise_then, rest_then = Rounds(tmp_path / "killed", setup, killed).left()
    assert rest.tobytes() == rest_then.tobytes()
    lost = np.isnan(noise_then)
    assert [tuple(at) for at in np.argwhere(lost)] == [(int(name[1]), t) for name, t in killed]  # not known, not 0
    assert (noise_then[~lost] == noise[~lost]).all()


# --- what a run leaves ---


@pytest.mark.runs
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_a_run_leaves_is_as_the_contract_says(quiet, name):
    r, (_, keys) = quiet[name], ALGORITHMS[name]
    assert (r.rounds_done, r.stopped_because, r.nodes) == (ROUNDS, "rounds", 4)
    assert sorted(r.trajectory) == sorted(keys)
    assert {v.shape for v in r.trajectory.values()} == {(ROUNDS + 1, 4, 3)}
    x = r.trajectory["f" if "f" in keys else "x"]
    assert not x[0].any()
    assert (r.solution["x"] == x[-1].mean(axis=0)).all()
    assert all((r.solution[f"x_n{i}"] == x[-1, i]).all() for i in range(4))
    h = r.history
    assert h["round"] == list(range(1, ROUNDS + 1))
    mean = x.mean(axis=1, keepdims=True)
    assert np.allclose(h["consensus_residual"], np.sqrt(np.sum((x - mean) ** 2, axis=(1, 2)))[1:], rtol=1e-12, atol=0)
    assert r.consensus_residual == h["consensus_residual"][-1]
    assert h["messages"] == [4 * REGISTERED[name].messages] * ROUNDS  # of each node, whoever hears them
    assert r.messages == sum(h["messages"])
    assert r.bytes == sum(h["bytes"])
    each = [b / m for b, m in zip(h["bytes"], h["messages"], strict=True)]
    assert max(each) - min(each) < 40  # but for the mark's numbers
    answered = ANSWERED[name]
    assert r.privacy["answers"] == sum(answered)
    assert {node["answers"] for node in r.privacy["per_node"].values()} == {sum(answered)}
    for i in range(4):
        cost = 20.0 * ROUNDS * np.cumsum(answered) / sum(answered)
        assert np.allclose(h[f"epsilon_n{i}"], cost, rtol=1e-12)
    assert [v > 0 for v in h["noise_l1_expected"]] == [a > 0 for a in answered]
    assert [v > 0 for v in h["noise_l1"]] == [a > 0 for a in answered]
    assert r.privacy["upheld"] == "not private"


@pytest.mark.runs
@pytest.mark.parametrize("name", ["dgd", "radmm", "dpadmm"])
def test_the_noise_is_as_large_as_expected(name):
    """Of 4 nodes' 100 answers of 3 numbers: their mean size is known to sqrt(2/1200) = 4 %; four times that."""
    rounds = 200 if name == "radmm" else 100
    h = run(scenario(name, rounds, seed=5)).history
    drawn, expected = np.array(h["noise_l1"]), np.array(h["noise_l1_expected"])
    assert abs(drawn.sum() / expected.sum() - 1) < 0.16


def test_published_DPP2_leaves_its_messages_too():
    over = TRAJECTORY | {"privacy": None}
    raw = scenario("dpp2", over=over)
    raw["algorithm"] |= PUBLISHED
    r = run(raw)
    assert {k: v.shape[0] for k, v in r.trajectory.items()} == {"x": 8, "q": 8, "y": 7, "z": 7}
    assert r.privacy["upheld"] is False
    assert r.privacy["findings"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_without_privacy_spends_nothing_and_says_so(name):
    r = run(scenario(name, over=NOT_PRIVATE))
    assert r.privacy["upheld"] == "not private"
    assert r.privacy["answers"] is None
    assert r.history["noise_l1"] == r.history["noise_l1_expected"] == [None] * ROUNDS
    assert not [key for key in r.history if key.startswith("epsilon")]
    assert all(v is not None for v in r.history["objective"])
    assert r.relative_error is not None


# --- the caps, the budget, what is refused ---


@pytest.mark.parametrize(
    ("name", "answers", "rounds"), [("dgd", 3, 3), ("nids", 3, 4), ("radmm", 2, 4), ("dpp2", 4, 4)]
)
def test_the_round_in_which_the_cap_is_reached_is_the_last(name, answers, rounds):
    r = run(scenario(name, over={"privacy.answers": answers}, seed=3))
    assert (r.rounds_done, len(r.history["round"])) == (rounds, rounds)
    assert r.privacy["answers"] == answers
    assert {node["answers"] for node in r.privacy["per_node"].values()} == {answers}
    assert r.privacy["capped"] == ["n0", "n1", "n2", "n3"]
    assert abs(r.privacy["spent"]["epsilon"] - 140.0) < 1e-9


@pytest.mark.runs
def test_a_cap_that_is_not_reached_ends_nothing(quiet):
    assert quiet["nids"].privacy["capped"] == []


def test_beyond_its_budget_no_node_answers(tmp_path):
    raw = scenario("mradmm", over={"privacy.budget": {"epsilon": 200.0}})
    run(raw, state=tmp_path)
    with pytest.raises(Refused, match=r"^n\d: ") as refused:  # 140 of 200 are spent
        run(raw, state=tmp_path, out=tmp_path / "out")
    assert refused.value.exit_code == 3
    assert not (tmp_path / "out").exists()
    assert [len(background_run.spends(tmp_path / f"n{i}.ledger")) for i in range(4)] == [4] * 4


WRONG = {
    "a stop": ("dgd", {"run.stop": {"tolerance": 1e-6}}, "run.stop: found a section, expected none"),
    "no round": ("extra", {"algorithm.rounds": 0}, "algorithm.rounds: "),
    "no step": ("extra", {"algorithm.step_size": None}, "algorithm.step_size: missing, expected a value"),
    "a step below 0": ("nids", {"algorithm.step_size": -1.0}, "algorithm.step_size: "),
    "a walk": ("nids", {"algorithm.walk": "random"}, "algorithm.walk: "),
    "parameters that diverge": ("dpp2", {"algorithm.rho": 50.0}, "algorithm.alpha: found 1 with beta 0.5, rho 50"),
    "beta": ("dpp2", {"algorithm.beta": 2.0}, "algorithm.beta: found 2, expected below"),
    "noise of guarded DPP2": ("dpp2", {"algorithm.u_w": 1.0}, "u_w"),
    "a regularizer of DPP2": ("dpp2", {"problem.regularizer": {"l1": 0.1}}, "problem.regularizer: found a value"),
    "a box of ADMM": ("admm", {"problem.box": 1.0}, "problem.box: found a value, expected none"),
    "gamma of ADMM": ("admm", {"algorithm.gamma": 1.0}, "algorithm.gamma: found 1, expected none"),
    "too few penalties": ("mradmm", {"algorithm.eta": [0.5, 0.5]}, "algorithm.eta: found 2 numbers, expected one for"),
    "no minimiser of squares": ("admm", {"problem.kind": "least-squares"}, "expected logistic"),
    "an answer that noise cannot pay": ("admm", {"privacy.epsilon": 0.01}, "private minimiser: found epsilon"),
    "zones": ("dgd", {"problem": {"kind": "zones", "case": "case14", "zones": 3}}, "algorithm.name: found dgd"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(wrong, tmp_path, capsys):
    name, over, said = WRONG[wrong]
    file, out = tmp_path / "wrong.yaml", tmp_path / "out"
    file.write_text(json.dumps(scenario(name, over=over)))  # JSON is YAML
    assert main(["run", str(file), "--out", str(out), "--quiet"]) == InputError.exit_code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not out.exists()


# --- an upheld run ---


@pytest.mark.runs
def test_an_upheld_run_has_no_figure_of_raw_data_and_its_report_renders(tmp_path):
    r = run(scenario("radmm"), out=tmp_path / "out")
    assert r.privacy["upheld"] is True
    assert (r.objective, r.optimality_gap, r.relative_error) == (None, None, None)
    with (tmp_path / "out" / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ROUNDS
    assert {row["objective"] + row["noise_l1"] for row in rows} == {""}
    assert all(float(row["noise_l1_expected"]) >= 0 for row in rows)
    page = build(tmp_path / "out").read_text()
    assert "7 rounds of" in page
    assert "Round by round" in page


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "record"),
    [("nids", "trajectory"), ("dpp2", "trajectory"), ("mradmm", "trajectory"), ("dpadmm", "transcript")],
)
def test_the_same_answers_over_other_rows_leave_the_same_bytes(name, record, tmp_path, monkeypatch):
    raw = scenario(name, over={"run.record": record})
    answers, honest = [], Lattice.release

    def listen(lattice, v, n):
        answers.append(honest(lattice, v, n))
        return answers[-1]

    one = left_with(monkeypatch, tmp_path / "one", raw, load, listen)
    again = iter(answers)
    other = left_with(monkeypatch, tmp_path / "other", raw, other_rows, lambda lattice, v, n: next(again))
    assert next(again, None) is None, "not every answer was asked for again"
    assert len(answers) == 4 * sum(ANSWERED[name])
    assert {"history.csv", "solution.npz", "report.html", "ledger/n0.ledger", "ledger/coordinator.ledger"} <= one.keys()
    assert [file for file in one if one[file] != other[file]] == []


# --- devices ---


@pytest.mark.parametrize("variant", ["published", "none"])
def test_a_device_refuses_what_is_for_simulation(variant, tmp_path):
    raw = scenario("dpp2", over=NOT_PRIVATE)
    raw["algorithm"] |= PUBLISHED if variant == "published" else {"variant": variant}
    setup = prepare(scenario_from(raw))
    with closing(Ledger(tmp_path / "n0.ledger", "n0")) as ledger:
        member = Member("fleet", setup.device("n0"), ledger, None)
        blob, sessions = encode_plan(setup.plan), {"n0": member.session}
        run_id = wire.run_id(blob, b"0" * 16, sessions)
        asked = wire.Envelope(run_id, 0, 0, None, wire.Plan(blob, b"0" * 16, sessions, {}))
        said = member.on_message(member.topics.all("coordinator"), wire.encode(asked))
        bodies = [wire.decode_envelope(p.payload, wire.SMALL).body for p in said]
        assert bodies == [wire.Refuse(f"n0: variant {variant} runs in simulation only (hushgrid run)", "refused")]
        assert ledger.spends.rows() == []


def test_a_run_that_records_its_end_alone_has_the_same_answer_and_the_last_objective():
    whole, end = (run(scenario("dgd", **{"run.record": record}), seed=3) for record in ("summary", "end"))
    assert {k: v.tolist() for k, v in end.solution.items()} == {k: v.tolist() for k, v in whole.solution.items()}
    assert end.objective == whole.objective
    assert end.history["objective"] == [*[None] * (ROUNDS - 1), whole.history["objective"][-1]]
    assert end.history["noise_l1"] == whole.history["noise_l1"]
