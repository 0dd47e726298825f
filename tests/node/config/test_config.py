"""Scenario and device configuration: each error one line with file, key path, found and expected; nothing else comes
out.
"""

import pytest
import yaml

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.config.planning import among, make_plan
from hushgrid.node.config.scenario import load_scenario, scenario_from
from hushgrid.node.privacy.terms import terms
from tests.support.scenarios import record_scenarios
from tests.support.scenarios.scenario_texts import DELETE, SCENARIO, changed, failure

DEVICE = """\
node: z1
fleet: demo
broker: mqtt://localhost:1883
state: state
data: {case: case14, zone: [1, 2, 3], loads: loads.csv}
budget: {epsilon: 5.0, adjacency: {bounded-change: 0.01}}
"""
ROWS = """\
node: n0
fleet: ring
broker: mqtt://localhost:1883
state: state
data: n0.npz
labels: {classes: 2}
problem: {kind: logistic, scale: 1, row_bound: 1.0}
budget: {epsilon: 5.0, adjacency: {bounded-change: 0.01}}
"""


# --- a scenario ---


def test_the_least_scenario_has_the_defaults_of_the_contract():
    s = scenario_from(yaml.safe_load(SCENARIO))
    a, p = s.algorithm, s.privacy
    assert (a.variant, a.rho, a.eta, a.local_updates) == ("guarded", 100.0, "1/(L+sqrt(t))", 1)
    assert (p.mechanism, p.mode, p.at, p.accountant, p.answers) == ("laplace", "objective", "data", None, None)
    assert (s.seed, s.run.record, s.run.stop, s.run.faults, s.run.truth) == (None, "summary", None, None, False)
    filled = make_plan(s, s.kind.public(s, "scenario")).privacy
    assert (filled.accountant, filled.answers) == ("pure-basic", 10)


@pytest.mark.parametrize(
    ("over", "answers"),
    [({}, 10), ({"algorithm__local_updates": 3}, 30), ({"privacy__mode": "input"}, 1), ({"privacy__answers": 7}, 7)],
    ids=str,
)
def test_the_cap_is_rounds_times_local_updates_and_one_for_input(over, answers):
    s = scenario_from(changed(SCENARIO, **over))
    t = terms(s.privacy, s.algorithm)
    assert t.answers == answers
    assert t.cost(t.answers) <= t.epsilon == 5.0


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"hushgrid": 2}, "hushgrid: found 2, expected one of 1"),
        ({"hushgrid": DELETE}, "hushgrid: missing, expected a value"),
        ({"name": DELETE}, "name: missing, expected a value"),
        ({"name": "a b"}, "name: found 'a b', expected str matching regex"),
        ({"name": False}, "name: found False, expected str"),
        ({"seed": -1}, "seed: found -1, expected int >= 0"),
        ({"seed": "7"}, "seed: found '7', expected int | null"),
        ({"epsilon": 1}, "epsilon: unknown key"),
        ({"problem": DELETE}, "problem: missing, expected a value"),
        (
            {"problem__kind": "softmaxx"},
            "problem.kind: found 'softmaxx', expected one of zones, least-squares, logistic, softmax",
        ),
        ({"problem__kind": [1]}, "problem.kind: found [1], expected one of zones, least-squares, logistic, softmax"),
        ({"problem__zones": DELETE}, "problem.zones: missing, expected a value"),
        ({"problem__zones": 0}, "problem.zones: found 0, expected int >= 1"),
        ({"problem__zones": [[1, "2"]]}, "problem.zones[0][1]: found '2', expected int"),
        ({"problem__load": "x"}, "problem.load: unknown key"),
        ({"algorithm": "ladmm"}, "algorithm: found 'ladmm', expected object"),
        ({"algorithm__name": "sgd"}, "algorithm.name: found 'sgd', expected one of admm, "),
        ({"algorithm__name": ["ladmm"]}, "algorithm.name: found ['ladmm'], expected one of admm, "),
        ({"algorithm__name": DELETE}, "algorithm.name: found None, expected one of admm, "),
        ({"algorithm__rounds": DELETE}, "algorithm.rounds: missing, expected a value"),
        ({"algorithm__rounds": 0}, "algorithm.rounds: found 0, expected int >= 1"),
        ({"algorithm__rounds": 1.5}, "algorithm.rounds: found 1.5, expected int"),
        ({"algorithm__rounds": "10"}, "algorithm.rounds: found '10', expected int"),
        ({"algorithm__local_updates": 0}, "algorithm.local_updates: found 0, expected int >= 1"),
        ({"algorithm__rho": 0}, "algorithm.rho: found 0, expected"),
        ({"algorithm__rho": float("nan")}, "algorithm.rho: found nan, expected"),
        ({"algorithm__rho": float("inf")}, "algorithm.rho: found inf, expected"),
        ({"algorithm__rho__c1": 2}, "algorithm.rho"),
        ({"algorithm__eta": "1/t"}, "algorithm.eta: found '1/t', expected one of"),
        ({"algorithm__eta": -0.1}, "algorithm.eta: found -0.1, expected"),
        ({"algorithm__variant": "noisy"}, "algorithm.variant: found 'noisy', expected one of"),
        ({"algorithm__step": 1}, "algorithm.step: unknown key"),
        ({"privacy": DELETE}, "privacy: found nothing, expected a privacy section (variant guarded)"),
        ({"algorithm__variant": "none"}, "privacy: found a privacy section, expected none"),
        ({"privacy__adjacency": DELETE}, "privacy.adjacency: missing, expected a value"),
        ({"privacy__adjacency": {}}, "privacy.adjacency: found {}, expected bounded-change"),
        ({"privacy__adjacency": {"replace-one-record": {"clip": 1.0}}}, "privacy.adjacency: found replace-one-record"),
        ({"privacy__adjacency__replace-one-record": {"clip": 1.0}}, "privacy.adjacency: found two adjacencies"),
        (
            {"privacy__adjacency__bounded-change": 0},
            "privacy.adjacency.bounded-change: found 0, expected float >= 1e-12",
        ),
        ({"privacy__epsilon": DELETE}, "privacy.epsilon: found neither epsilon nor per_answer, expected one of them"),
        ({"privacy__per_answer": {"epsilon": 1}}, "privacy.epsilon: found both epsilon and per_answer, expected one"),
        ({"privacy__epsilon": 0}, "privacy.epsilon: found 0, expected float >= 1e-09"),
        ({"privacy__epsilon": float("inf")}, "privacy.epsilon: found inf, expected"),
        ({"privacy__epsilon": True}, "privacy.epsilon: found True, expected float"),
        ({"privacy__mechanism": "normal"}, "privacy.mechanism: found 'normal', expected one of"),
        ({"privacy__mechanism": "gaussian"}, "privacy.delta: found nothing, expected a number between 0 and 1"),
        ({"privacy__delta": 1.0}, "privacy.delta: found 1.0, expected float <= 0.5"),
        ({"privacy__delta": 0.1}, "privacy.delta: found 0.1, expected none (pure-basic)"),
        ({"privacy__accountant": "pure-optimal"}, "privacy.delta: found nothing, expected a number between 0 and 1"),
        ({"privacy__accountant": "zcdp"}, "privacy.accountant: found zcdp, expected pure-basic or pure-optimal"),
        ({"privacy__accountant": "rdp"}, "privacy.accountant: found 'rdp', expected one of"),
        (
            {"privacy__mechanism": "gaussian", "privacy__delta": 0.1, "privacy__accountant": "pure-basic"},
            "privacy.accountant: found pure-basic, expected zcdp or gdp (mechanism gaussian)",
        ),
        ({"privacy__mode": "output"}, "privacy.mode: found output, expected objective or input"),
        (
            {"privacy__mode": "input", "algorithm__variant": "published"},
            "privacy.mode: found input, expected objective",
        ),
        (
            {"privacy__mode": "input", "privacy__at": "gradient"},
            "privacy.at: found gradient, expected data (mode: input)",
        ),
        ({"privacy__answers": 0}, "privacy.answers: found 0, expected int >= 1"),
        (
            {"privacy__budget": {"epsilon": 1, "adjacency": {"bounded-change": 1}}},
            "privacy.budget.adjacency: found bounded-change 1.0, expected bounded-change 0.01",
        ),
        ({"run__faults": {"loss": 1.5}}, "run.faults.loss: found 1.5, expected float <= 1.0"),
        ({"run__faults": {"lost": 0.5}}, "run.faults.lost: unknown key"),
        ({"run__stop": {"patience": 3}}, "run.stop.tolerance: missing, expected a value"),
        ({"run__stop": {"tolerance": 1e-6, "patience": 0}}, "run.stop.patience: found 0, expected int >= 1"),
        ({"run__record": "all"}, "run.record: found 'all', expected one of"),
    ],
    ids=str,
)
def test_each_error_of_a_scenario_is_one_line_with_its_key_path(over, line):
    assert failure(changed(SCENARIO, **over)).startswith(line)


def test_fewer_answers_than_one_round_needs_is_an_error():
    s = scenario_from(changed(SCENARIO, algorithm__local_updates=3, privacy__answers=2))
    with pytest.raises(InputError, match=r"privacy.answers: found 2, expected at least local_updates = 3, one round"):
        terms(s.privacy, s.algorithm)


def test_more_answers_than_a_plan_can_say_are_an_error():
    s = scenario_from(changed(SCENARIO, algorithm__rounds=5_000_000, algorithm__local_updates=3))
    with pytest.raises(InputError, match=r"algorithm\.rounds: found 5000000 with 3 local_updates, expected at most"):
        terms(s.privacy, s.algorithm)


def test_a_cap_below_the_rounds_ends_the_run_with_the_last_whole_round():
    s = scenario_from(changed(SCENARIO, algorithm__local_updates=3, privacy__answers=8))
    t = terms(s.privacy, s.algorithm)
    assert (t.rounds, t.capped) == (2, True)


def test_a_per_answer_epsilon_gives_the_total_and_a_total_the_per_answer_epsilon():
    s = scenario_from(changed(SCENARIO, privacy__epsilon=DELETE, privacy__per_answer={"epsilon": 0.05}))
    assert terms(s.privacy, s.algorithm).epsilon == pytest.approx(0.5, rel=1e-15)
    s = scenario_from(yaml.safe_load(SCENARIO))
    assert terms(s.privacy, s.algorithm).per_answer == 0.5


def test_a_path_wins_over_a_built_in_case_only_where_there_is_such_a_file(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert load_scenario(tmp_path / "s.yaml").problem.case == "case14"
    (tmp_path / "case14").write_text("")
    assert load_scenario(tmp_path / "s.yaml").problem.case == str(tmp_path / "case14")


@pytest.mark.parametrize("case", ["a\0b", "x" * 5000])
def test_a_case_no_file_can_be_called_is_no_file(case):
    assert scenario_from(changed(SCENARIO, problem__case=case)).problem.case == case


# --- a device's configuration ---


def device(tmp_path, text):
    (tmp_path / "node.yaml").write_text(text)
    return load_device(tmp_path / "node.yaml")


def test_a_devices_paths_are_relative_to_its_file(tmp_path):
    c = device(tmp_path, DEVICE + "mark: m/z1.mark\ntls: {ca: ca.pem}\n")
    assert c.state == str(tmp_path / "state")
    assert c.mark == str(tmp_path / "m/z1.mark")
    assert c.data.loads == str(tmp_path / "loads.csv")
    assert c.tls.ca == str(tmp_path / "ca.pem")
    assert c.data.case == "case14"


MASKED = DEVICE + "allow: {masked: {corrupt: 1, honest: 3, alone: 4.0, "
TLS = "tls: {ca: ca.pem, cert: z1.crt, key: z1.key}\n"


def test_an_owner_consents_to_masked_runs_by_the_members_fingerprints_or_by_an_authority(tmp_path):
    c = device(tmp_path, MASKED + "ca: owners.pem}}\n" + TLS)
    assert (c.allow.masked.corrupt, c.allow.masked.honest, c.allow.masked.alone) == (1, 3, 4.0)
    assert (c.allow.masked.ca, c.allow.masked.peers) == (str(tmp_path / "owners.pem"), None)
    peers = [f"{k:064x}" for k in range(3)]
    c = device(tmp_path, MASKED + f"peers: {peers}}}}}\n" + TLS)
    assert (c.allow.masked.ca, c.allow.masked.peers) == (None, tuple(peers))
    assert device(tmp_path, DEVICE).allow.masked is None


def test_what_is_revoked_stands_beside_an_authority_and_corrupt_may_be_a_share(tmp_path):
    mark = f"{7:064x}"
    beside = (
        MASKED.replace("corrupt: 1", "corrupt: 0.2") + f"ca: owners.pem, revoked: ['{mark}'], crl: owners.crl}}}}\n"
    )
    allowed = device(tmp_path, beside + TLS).allow.masked
    assert (allowed.corrupt, allowed.revoked, allowed.crl) == (0.2, (mark,), str(tmp_path / "owners.crl"))
    for corrupt in ("1.0", "-1", "1.5", "nan", "'20%'"):
        with pytest.raises(InputError, match=r"allow.masked.corrupt: found "):
            device(tmp_path, MASKED.replace("corrupt: 1", f"corrupt: {corrupt}") + "ca: owners.pem}}\n" + TLS)


@pytest.mark.parametrize(
    ("rest", "line"),
    [
        ("}}\n" + TLS, "allow.masked: found {.*, expected one of peers and ca"),
        (f"ca: a.pem, peers: ['{0:064x}']}}}}\n" + TLS, "allow.masked: found {.*, expected one of peers and ca"),
        ("peers: []}}\n" + TLS, r"allow.masked.peers: found \[\], expected array of length >= 1"),
        ("peers: [AB]}}\n" + TLS, r"allow.masked.peers\[0\]: found 'AB', expected str matching regex"),
        (
            f"peers: ['{0:064x}'], crl: a.crl}}}}\n" + TLS,
            "allow.masked: found {.*, expected revoked and crl beside ca alone",
        ),
        ("ca: a.pem, share: 1}}\n" + TLS, "allow.masked.share: unknown key"),
        ("ca: a.pem}}\n", "allow.masked: found no certificate of this device, expected tls.cert and tls.key beside it"),
        ("ca: a.pem}}\ntls: {ca: ca.pem}\n", "found no certificate of this device, expected tls.cert and tls.key"),
    ],
)
def test_a_wrong_consent_to_masked_runs_is_one_line(tmp_path, rest, line):
    with pytest.raises(InputError, match=line) as caught:
        device(tmp_path, MASKED + rest)
    assert "\n" not in str(caught.value)


def test_it_may_stand_under_node(tmp_path):
    nested = "node:\n" + "".join(f"  {line}\n" for line in DEVICE.splitlines())
    assert device(tmp_path, nested) == device(tmp_path, DEVICE)
    with pytest.raises(InputError, match="seed: found beside node, expected node alone"):
        device(tmp_path, nested + "seed: 7\n")


@pytest.mark.parametrize("line", ["seed: 7", "variant: none", "published: true", "none: true", "truth: true"])
def test_a_device_refuses_what_only_simulation_may_have(tmp_path, line):
    with pytest.raises(InputError, match=f"{line.split(':')[0]}: found .* expected in simulation only"):
        device(tmp_path, DEVICE + line)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("node: z1", "node: Z1", "node: found 'Z1', expected str matching regex"),
        ("node: z1\n", "", "node: missing, expected a value"),
        ("fleet: demo", "fleet: a/b", "fleet: found 'a/b', expected"),
        (DEVICE.splitlines()[-1], "", "budget: missing, expected a value"),
        (", adjacency: {bounded-change: 0.01}", "", "budget.adjacency: missing, expected e.g. {bounded-change: 0.01}"),
        ("epsilon: 5.0", "epsilon: .inf", "budget.epsilon: found inf, expected"),
        ("zone: [1, 2, 3]", "zone: 3", "data.zone: found 3, expected array"),
        ("state: state", "states: state", "states: unknown key"),
    ],
)
def test_each_error_of_a_device_is_one_line_with_its_key_path(tmp_path, old, new, line):
    assert old in DEVICE
    with pytest.raises(InputError) as caught:
        device(tmp_path, DEVICE.replace(old, new))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


REPLACED = "adjacency: {replace-one-record: {clip: 1.0}}"


def test_a_device_with_rows_declares_its_labels_and_under_bounded_change_its_problem(tmp_path):
    c = device(tmp_path, ROWS)
    assert (c.labels.classes, c.problem.kind, c.problem.scale, c.problem.row_bound) == (2, "logistic", 1.0, 1.0)
    replaced = ROWS.replace("adjacency: {bounded-change: 0.01}", REPLACED)
    assert device(tmp_path, replaced).problem == c.problem  # not needed, and binds all the same
    assert device(tmp_path, replaced.replace(ROWS.splitlines()[6] + "\n", "")).problem is None
    ranged = replaced.replace("classes: 2", "low: -5, high: 2.5").replace("kind: logistic", "kind: least-squares")
    assert (device(tmp_path, ranged).labels.low, device(tmp_path, ranged).labels.high) == (-5.0, 2.5)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("labels: {classes: 2}\n", "", "labels: missing, expected {classes: C} or {low: ..., high: ...}"),
        ("labels: {classes: 2}", "classes: 2", "classes: unknown key, expected one of node,"),
        ("{classes: 2}", "{}", "labels: found nothing, expected classes, or low and high with low < high"),
        (
            "{classes: 2}",
            "{classes: 2, low: 0}",
            "labels: found classes: 2, low: 0.0, expected classes, or low and high",
        ),
        ("{classes: 2}", "{low: 0}", "labels: found low: 0.0, expected classes, or low and high"),
        ("{classes: 2}", "{low: 1, high: 1}", "labels: found low: 1.0, high: 1.0, expected classes, or low and high"),
        ("{classes: 2}", "{low: .nan, high: 1}", "labels.low: found nan, expected"),
        ("{classes: 2}", "{low: 0, high: 10001}", "labels.high: found 10001, expected float <= 10000.0"),
        ("{classes: 2}", "{classes: 1}", "labels.classes: found 1, expected int >= 2"),
        ("{classes: 2}", "{classes: 3}", "problem.kind: found logistic, expected one for labels of 3 classes"),
        ("{classes: 2}", "{low: -1, high: 1}", "problem.kind: found logistic, expected one for labels of -1 to 1"),
        (
            "kind: logistic",
            "kind: least-squares",
            "problem.kind: found least-squares, expected one for labels of 2 classes",
        ),
        (", scale: 1", "", "problem.scale: missing, expected a value"),
        (", row_bound: 1.0", "", "problem.row_bound: missing, expected a value"),
        (ROWS.splitlines()[6] + "\n", "", "problem: missing, expected {kind: ..., scale: ..., row_bound: ...}"),
        (
            "{bounded-change: 0.01}",
            "{bounded-change: {pair: 0.01, power_factor: 0.9}}",
            "budget.adjacency.bounded-change: found a change of loads, expected a number",
        ),
        ("{bounded-change: 0.01}", "{}", "budget.adjacency: found {}, expected one of bounded-change and"),
        (
            "{bounded-change: 0.01}",
            "{bounded-change: 0.01, replace-one-record: {clip: 1}}",
            "budget.adjacency: found both",
        ),
        (
            "data: n0.npz",
            "data: {case: case14, zone: [1], loads: l.csv}",
            "labels: found a section, expected none (a zone",
        ),
    ],
)
def test_what_an_owner_of_rows_leaves_open_or_contradicts_is_one_line(tmp_path, old, new, line):
    assert old in ROWS
    with pytest.raises(InputError) as caught:
        device(tmp_path, ROWS.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'node.yaml'}: {line}")
    assert "\n" not in str(caught.value)


def test_a_consent_to_bounded_change_needs_the_problem_too(tmp_path):
    text = ROWS.replace(ROWS.splitlines()[6] + "\n", "").replace("adjacency: {bounded-change: 0.01}", REPLACED)
    with pytest.raises(InputError, match=r"problem: missing, expected .* \(adjacency bounded-change\)"):
        device(tmp_path, text + "allow: {adjacency: {bounded-change: 0.01}}\n")


@pytest.mark.parametrize("line", ["labels: {classes: 2}", ROWS.splitlines()[6]])
def test_a_zone_declares_no_labels_and_no_problem_of_rows(tmp_path, line):
    with pytest.raises(InputError, match=r"found a section, expected none \(a zone has loads, no rows\)"):
        device(tmp_path, DEVICE + line + "\n")


def test_a_zones_budget_counts_bounded_change(tmp_path):
    with pytest.raises(
        InputError, match=r"budget.adjacency: found replace-one-record.*expected bounded-change \(a zone\)"
    ):
        device(tmp_path, DEVICE.replace("adjacency: {bounded-change: 0.01}", REPLACED))


def test_a_coordinators_configuration(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("{fleet: demo, broker: 'mqtt://localhost', scenario: s.yaml, state: st}")
    c = load_coordinator(path)
    assert (c.scenario, c.state) == (str(tmp_path / "s.yaml"), str(tmp_path / "st"))
    assert (c.wait_s, c.silent_s) == (60.0, 10.0)
    path.write_text("{fleet: demo, broker: 'mqtt://localhost', scenario: s.yaml, state: st, silent_s: 0}")
    with pytest.raises(InputError, match="silent_s: found 0, expected float > 0"):
        load_coordinator(path)


# --- a plan without some of its nodes ---


@pytest.mark.parametrize(
    ("walk", "over", "whole", "left"),
    [
        ("hamiltonian", {}, 5, (5, 5, 10)),  # n3 is the middle of a path
        ("hamiltonian", {"privacy.answers": 3}, 3, 3),
        ("hamiltonian", {"privacy.answers": [5, 4, 3, 2]}, (5, 4, 3, 2), (5, 3, 2)),
    ],
)
def test_caps_that_the_program_chose_are_chosen_anew_for_the_nodes_that_are_there(walk, over, whole, left):
    s = scenario_from(record_scenarios.scenario({"algorithm.walk": walk} | over))
    plan = make_plan(s, s.kind.public(s, "scenario"))
    assert plan.privacy.answers == whole
    assert among(plan, ["n0", "n2", "n3"]).privacy.answers == left
