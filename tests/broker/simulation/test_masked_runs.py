"""Masked runs end to end in one process: what is decoded, what is claimed and paid, what is refused."""

import json
from math import sqrt

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.masked import decodable, repeated, share_sd
from hushgrid.lab.attacks.page import verdict
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.rollout.machines import AllowAll, final_iterates
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.machines import place
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support import examples
from tests.support.runs.background_run import assert_same_bits
from tests.support.runs.masked_runs import assert_no_pad_twice, masked


def unmasked(tmp_path, **over):
    """The same without privacy."""
    raw = masked(tmp_path, **over)
    del raw["privacy"]
    raw["algorithm"]["variant"] = "none"
    return raw


#: What the coordinator does with the mean, besides the step.
STEPS = {
    "alone": {},
    "momentum": {"algorithm": {"momentum": 0.6}},
    "l1": {"problem": {"regularizer": {"l1": 0.02, "l2": 0.01}}},
    "box": {"problem": {"box": 0.1}},
    "all": {"algorithm": {"momentum": 0.6}, "problem": {"regularizer": {"l1": 0.02}, "box": 0.1}},
}


@pytest.mark.runs
@pytest.mark.parametrize("step", STEPS)
def test_with_next_to_no_noise_it_is_federated_averaging(tmp_path, step):
    """Both take the mean of the gradients; the grid's rounding and the noise of epsilon 1e9 are all that differs: five
    deviations of a share in each of six steps, which momentum adds up to 1/(1 - .6) times."""
    one = run(masked(tmp_path, privacy={"epsilon": 1e9}, run={"record": "transcript"}, **STEPS[step]))
    plain = run(unmasked(tmp_path, **STEPS[step]))
    room = 6 * 5 / (1 - 0.6) * share_sd(parse(one.transcript, "t"))
    assert room < 1e-3
    assert np.abs(one.solution["x"] - plain.solution["x"]).max() < room
    assert step == "alone" or np.abs(plain.solution["x"] - run(unmasked(tmp_path)).solution["x"]).max() > 1e-3


@pytest.mark.runs
def test_a_run_with_l1_reaches_the_optimum_of_its_problem(tmp_path):
    """f_p is .1-strongly convex and .35-smooth, so with alpha = 1 each round brings x .9 times as near to x*, from 0
    on.
    """
    result = run(unmasked(tmp_path, algorithm={"rounds": 150}, problem={"regularizer": {"l1": 0.02}}))
    assert result.relative_error <= 0.9**150
    assert np.any(result.solution["x"] == 0)


def test_the_recorded_iterate_is_the_coordinators_where_it_steps_on_from_the_mean(tmp_path):
    result = run(unmasked(tmp_path, run={"record": "trajectory"}, **STEPS["all"]))
    assert np.array_equal(result.trajectory["w"][-1], result.solution["x"])
    assert np.abs(result.trajectory["w"]).max() == 0.1  # the box
    mean = np.mean([result.trajectory[f"z_n{i}"][-1] for i in range(4)], axis=0)
    assert np.abs(mean - result.solution["x"]).max() > 1e-3


def test_a_run_that_is_played_for_tuning_ends_where_the_real_one_does(tmp_path):
    raw = unmasked(tmp_path, **STEPS["all"])
    setup = prepare(scenario_from(raw, "s"))
    machines = []
    for i, name in enumerate(setup.plan.nodes):
        noise = SeededNoise(1, name)
        gate = setup.device(name).gate(setup.plan, noise, AllowAll())
        machines.append(setup.plan.running.agent(place(setup.plan, bytes(16), i, gate, noise)))
    assert np.array_equal(final_iterates(setup.plan, machines)[0], run(raw).solution["x"])


def test_a_regulariser_is_refused_beside_several_local_steps(tmp_path):
    words = (
        r"problem.regularizer: found a value, expected none .fedavg minimises sum_i f_i.x. over a box if "
        r"local_updates is "
    )
    with pytest.raises(InputError, match=words):
        run(unmasked(tmp_path, algorithm={"local_updates": 2}, problem={"regularizer": {"l1": 0.02}}))


def test_a_plan_without_momentum_has_the_bytes_it_had(tmp_path):
    plan, other = (prepare(scenario_from(masked(tmp_path, algorithm=a), "s")).plan for a in ({}, {"momentum": 0.5}))
    assert b"momentum" not in encode_plan(plan)
    assert decode_plan(encode_plan(other)).algorithm.momentum == 0.5


@pytest.mark.runs
def test_the_noise_of_the_mean_is_that_of_the_honest_sum(tmp_path):
    """One round from zero by 60 seeds: the mean answer's deviation is sqrt(n) t_share/n, not the sqrt(h) larger one of
    answers that are worth the claim by themselves."""
    raw = masked(tmp_path, algorithm={"rounds": 1})
    exact = masked(tmp_path, algorithm={"rounds": 1, "variant": "none"})
    del exact["privacy"]
    centre = run(exact).solution["x"]
    moved = np.array([run(raw | {"seed": s}).solution["x"] - centre for s in range(60)]).ravel()
    result = run(raw | {"run": {"record": "transcript"}})
    sd = share_sd(parse(result.transcript, "t")) / sqrt(4)
    chi2 = float(np.sum((moved / sd) ** 2))
    assert abs(chi2 - moved.size) < 5 * sqrt(2 * moved.size)


@pytest.mark.runs
def test_identities_change_no_bit_and_every_message_but_the_shares_is_the_same(tmp_path):
    raw = masked(tmp_path, run={"record": "transcript"})
    one, other = run(raw), run(raw)
    assert np.array_equal(one.solution["x"], other.solution["x"])
    a, b = (decodable(parse(r.transcript, "t")) for r in (one, other))
    assert all(np.array_equal(x.total, y.total) for x, y in zip(a, b, strict=True))


@pytest.mark.runs
def test_what_is_claimed_is_spent_and_stands_beside_what_a_share_is_worth_alone(tmp_path):
    result = run(masked(tmp_path), out=tmp_path / "run")
    p = result.summary["privacy"]
    assert p["claimed"] == {"epsilon": 1.0, "delta": 1e-5}
    assert p["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert p["masked"]["honest"] == 3
    assert p["masked"]["alone"]["epsilon"] == pytest.approx(1.81, abs=0.1)  # sqrt 3 times mu
    report = (tmp_path / "run/report.html").read_text()
    assert "Against the broker, the coordinator and any 1 of the 4 devices together" in report
    assert "Masking is not integrity" in report


@pytest.mark.runs
def test_the_headline_of_an_upheld_masked_run_says_against_whom(tmp_path):
    raw = masked(tmp_path)
    del raw["seed"]
    result = run(raw, out=tmp_path / "run")
    assert result.summary["privacy"]["upheld"] is True
    report = (tmp_path / "run/report.html").read_text()
    assert "per node over this whole run, against the broker, the coordinator and any 1 of the nodes together" in report


def test_the_noise_that_was_drawn_in_each_round_stands_in_the_history_the_last_one_too(tmp_path):
    """A mean over 20 entries: its deviation is 0.17 of it."""
    history = run(masked(tmp_path)).history
    drawn, expected = (np.array(history[key]) for key in ("noise_l1", "noise_l1_expected"))
    assert drawn.size == 6
    assert np.all(np.abs(drawn / expected - 1) < 5 * 0.17)
    assert drawn.min() > 0


@pytest.mark.runs
def test_of_a_seeded_masked_run_it_is_said_first_that_nothing_holds(tmp_path):
    run(masked(tmp_path), out=tmp_path / "run")
    report = (tmp_path / "run/report.html").read_text()
    assert (
        0
        < report.index("They do not hold for this run.")
        < report.index("Against the broker, the coordinator and any 1")
    )


@pytest.mark.runs
def test_a_report_says_what_more_corrupt_devices_mean_and_what_is_not_there_to_see(tmp_path):
    raw = masked(tmp_path)
    del raw["seed"]
    result = run(raw, out=tmp_path / "run")
    report = (tmp_path / "run/report.html").read_text()
    alone = result.summary["privacy"]["masked"]["alone"]["epsilon"]
    assert (
        f"The claim allows for 1 of these; beyond that the others are protected less, at the worst with ε = {alone:.4g}"
        in report
    )
    assert "protection stands" not in report
    assert "k count as k times ε and more than k times δ." in report
    assert "1e-05" not in report.partition("Privacy in full")[2].partition("Scenario, resolved")[0]
    assert "each node talks to the coordinator alone" in report
    assert "the common value: they are the same." in report
    assert "in their sum, which alone is seen, they cancel in part" in report


@pytest.mark.runs
def test_what_a_device_has_spent_is_one_number_where_devices_differ(tmp_path, hushgrid):
    """A device with more rows moves a sum less, so that its ledger has less than the claim; a coordinator shares
    nothing.
    """
    raw = masked(tmp_path)
    files = raw["problem"]["data"]["files"]
    with np.load(files[0]) as kept:
        np.savez(files[0], A=np.vstack([kept["A"]] * 2), b=np.hstack([kept["b"]] * 2))
    own = run(raw, out=tmp_path / "run").summary["privacy"]["per_node"]
    assert own["n0"]["spent"]["epsilon"] == pytest.approx(own["n0"]["ledger"]["epsilon"], rel=1e-9)
    assert own["n0"]["spent"]["epsilon"] < 0.9 < own["n1"]["spent"]["epsilon"]
    seen = json.loads(hushgrid("ledger", "show", tmp_path / "run/ledger/n0.ledger", "--json").out)
    assert seen["runs"][0]["epsilon"] == pytest.approx(seen["totals"][0]["epsilon"], rel=1e-9)
    assert "shares" not in hushgrid("ledger", "show", tmp_path / "run/ledger/coordinator.ledger").out


@pytest.mark.runs
def test_an_eavesdropper_decodes_the_sums_and_nothing_of_a_device(tmp_path):
    result = run(masked(tmp_path, run={"record": "transcript"}), out=tmp_path / "run")
    found = attack(tmp_path / "run")
    assert found["gradients"] == found["rows"] == {}
    assert (found["sums"], found["alone"]) == (6, [])
    assert "they show no device's answer by itself" in verdict(found)[-1]
    assert "n3" in verdict(found | {"alone": ["n3"]})[-1]
    arrays = np.load(tmp_path / "run/attack/recovered.npz")
    assert arrays["g_sum"].shape == (6, 5)
    assert not any(name.startswith("alone_") for name in arrays)
    assert "No answer of a single device is among them." in (tmp_path / "run/attack/attack.html").read_text()
    assert len(decodable(parse(result.transcript, "t"))) == 6


def test_an_answer_sent_again_under_a_smaller_set_is_found(tmp_path):
    """Two attempts at one round: of a sound run they are all their noise apart, of the classical mistake one answer."""
    result = run(masked(tmp_path, run={"record": "transcript"}))
    of = parse(result.transcript, "t")
    sums, sd = decodable(of), share_sd(of)
    rng = np.random.default_rng(0)
    whole = sums[0]
    alone = rng.normal(0, sd, whole.total.size)  # of n3
    again = whole._replace(attempt=2, among=whole.among[:3], total=whole.total - alone, devices=3)
    fresh = again._replace(total=again.total + sqrt(6) * sd * rng.normal(size=alone.size))
    assert [(r.round, r.node) for r in repeated([whole, again], sd)] == [(1, "n3")]
    assert np.allclose(repeated([whole, again], sd)[0].answer, alone)
    assert repeated([whole, fresh], sd) == []


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"algorithm": {"local_updates": 2}}, "privacy.masked: found a section, expected none .a second local step"),
        (
            {"algorithm": {"name": "fedprox"}},
            "privacy.masked: found a section, expected none .a model that is pulled back",
        ),
        (
            {"algorithm": {"name": "ladmm", "rounds": 6, "rho": 1.0}},
            "privacy.masked: found a section, expected none .ladmm",
        ),
        (
            {"privacy": {"mechanism": "laplace", "accountant": "pure-basic"}},
            "privacy.mechanism: found laplace, expected gaus",
        ),
        ({"privacy": {"sensitivity": "pointwise"}}, "privacy.sensitivity: found pointwise, expected uniform"),
        ({"privacy": {"schedule": {"growth": 1.1}}}, "privacy.schedule: found growth 1.1, expected none"),
        ({"privacy": {"masked": {"corrupt": 4}}}, "privacy.masked.corrupt: found 4 of 4 contributors, expected fewer"),
        ({"privacy": {"masked": {"corrupt": 0, "contributors": 5}}}, "privacy.masked.contributors: found 5 of 4 nodes"),
        ({"privacy": {"masked": {"corrupt": 0, "contributors": 1}}}, "privacy.masked.contributors: found 1 of 4 nodes"),
    ],
)
def test_what_cannot_be_masked_is_refused_in_one_line(tmp_path, over, words):
    raw = masked(tmp_path, **over)
    if "name" in over.get("algorithm", {}) and over["algorithm"]["name"] == "ladmm":
        raw["algorithm"] = over["algorithm"]
    if raw["privacy"]["mechanism"] == "laplace":
        del raw["privacy"]["delta"]
    with pytest.raises(InputError, match=words):
        run(raw)


def test_a_scenario_says_what_is_masked_and_the_plan_carries_it(tmp_path):
    raw = masked(tmp_path, privacy={"masked": {"corrupt": 1, "contributors": 3}})
    scenario = scenario_from(raw, "s")
    assert json.loads(json.dumps(raw))["privacy"]["masked"] == {"corrupt": 1, "contributors": 3}
    assert scenario.privacy.masked.contributors == 3
    result = run(raw)
    assert result.summary["privacy"]["answers"] == 6 + 2 + 1  # a tenth of the rounds, and two, may be asked again
    assert result.summary["privacy"]["masked"]["honest"] == 2


@pytest.mark.runs
@examples.of(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    loss=st.floats(0, 0.5), duplicate=st.floats(0, 0.5), reorder=st.floats(0, 1), crash=st.floats(0, 0.1),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_faults_and_restarts_of_every_role_change_no_bit_and_use_no_pad_twice(
    tmp_path, undisturbed, loss, duplicate, reorder, crash, seed
):
    faults = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "crash": crash, "seed": seed}
    raw, result = undisturbed
    disturbed = run(raw | {"run": {"record": "transcript", "faults": faults}})
    assert_same_bits(result, disturbed)
    assert_no_pad_twice(disturbed.transcript)
    assert disturbed.summary["privacy"]["spent"] == result.summary["privacy"]["spent"]


@pytest.fixture(scope="module", params=["alone", "all"])
def undisturbed(tmp_path_factory, request):
    raw = masked(tmp_path_factory.mktemp("rows"), **STEPS[request.param])
    return raw, run(raw | {"run": {"record": "transcript"}})
