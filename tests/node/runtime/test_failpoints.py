"""A device whose disk, power or process fails at any boundary of a run: its outcome is there, or its end is stated, and
its ledger shows no less than what has left it."""

import os

import pytest

from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms.registry import ALGORITHMS, of_patterns
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.failing_fleet import CRASHES, CUTS, FULL, KINDS, Fleet
from tests.support.scenarios.guarded_scenarios import around, exact_zones, rounds, sums, walk, zones

FEW = {"algorithm.rounds": 3}
TWO = {"network": {"kind": "path", "nodes": 2}}
RAW = {
    "ladmm": zones(epsilon=5.0),
    "ladmm, mode input": zones(epsilon=5.0, mode="input"),
    "consensus-admm": exact_zones(epsilon=5.0),
    **{name: walk(name, TWO | {"algorithm.walk": "random", "algorithm.rounds": 6}) for name in of_patterns(("token",))},
    **{name: rounds(name, TWO | FEW) for name in of_patterns(("neighbours",))},
    **{name: around(name, FEW) for name in ("fedavg", "fedprox")},
    "sum": sums(),
}
REPRESENTATIVES = (
    "ladmm",
    "ladmm, mode input",
    "consensus-admm",
    "recal",
    "iadmm",
    "dgd",
    "radmm",
)  #: one of each pattern and question


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """{(algorithm, victim): (setup, what the undisturbed run leaves, its boundaries)}, made when asked for."""
    known = {}

    def of(name, victim):
        if (name, victim) not in known:
            setup = prepare(scenario_from(RAW[name]))
            with pytest.MonkeyPatch.context() as held:
                fleet = Fleet(held, tmp_path_factory.mktemp("quiet"), setup, victim)
                known[name, victim] = setup, fleet.to_the_end(), fleet.disk.crossed
                assert fleet.exits == []
        return known[name, victim]

    return of


def victim_of(name):
    return "z1" if RAW[name]["problem"]["kind"] == "zones" else "n0"


def failed_at(directory, setup, victim, kind, k, undisturbed):
    """What is wrong with a run of which this fails; nothing where all is as it should be."""
    with pytest.MonkeyPatch.context() as held:
        try:
            fleet = Fleet(held, directory, setup, victim, kind, k)
            found = fleet.to_the_end()
        except AssertionError as error:
            return [str(error)]
    wrong = [f"exit {code}: {text}" for code, text in fleet.exits if kind not in FULL or code != 4]
    # Until its record is synced a power cut takes the note of what was drawn, and nothing has left.
    since = list(reversed(fleet.disk.crossed[:k]))
    unsynced = kind in CUTS and "note" in since and not {"sync", "publish"} & {*since[: since.index("note")]}
    if victim != COORDINATOR and fleet.unpaid > 0 and not unsynced:
        wrong.append(f"in {fleet.unpaid} answers noise has met data, and the ledger does not show it")
    if found["error"] is not None:
        return [*wrong, f"the run ended: {found['error']}"]
    for what, expected in undisturbed.items():
        if found.get(what) != expected:  # of spends too: what is asked again is the same question
            shown = len(found[what]) if what.startswith("spends") else str(found.get(what))[:60]
            wrong.append(f"{what}: {shown}, expected {len(expected)}")
    if victim != COORDINATOR and fleet.said > len(found[f"spends {victim}"]):
        wrong.append(f"{fleet.said} spends have been told of, {len(found[f'spends {victim}'])} are in the ledger")
    return wrong


def all_failed(tmp_path, quiet, name, victim, kind, moments):
    setup, undisturbed, crossed = quiet(name, victim)
    wrong = {}
    for k in moments(len(crossed)):
        if found := failed_at(tmp_path / str(k), setup, victim, kind, k, undisturbed):
            wrong[k, crossed[k - 1]] = found
    return wrong


def some(boundaries):
    """The first, one between, and the last few, where the outcome is written; `make test-long` tries every one."""
    return sorted({1, boundaries // 2, *range(max(boundaries - 2, 1), boundaries + 1)})


def test_every_registered_algorithm_stands_here():
    assert {raw["algorithm"]["name"] for raw in RAW.values()} == set(ALGORITHMS)


@pytest.mark.runs
@pytest.mark.parametrize("name", RAW)
def test_an_undisturbed_run_leaves_every_device_an_outcome_that_opens(quiet, name):
    setup, found, crossed = quiet(name, victim_of(name))
    assert found["error"] is None
    for node in setup.plan.nodes:
        assert found[f"outcome {node}"], node
        assert found[f"status {node}"] == "done"
        assert found[f"wrong {node}"] == []
    assert crossed.count("commit") > 4
    assert crossed.count("rename") >= 1


@pytest.mark.runs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_what_fails_at_a_boundary_loses_no_outcome_and_no_spend(tmp_path, quiet, name, kind):
    assert all_failed(tmp_path, quiet, name, victim_of(name), kind, some) == {}


@pytest.mark.parametrize(
    ("method", "nothing", "found"),
    [("_read", [], "noise has met data"), ("kept", None, "spends n0: 4, expected 3")],
    ids=["nothing is paid for at the next start", "nothing is repeated"],
)
def test_a_note_that_is_not_heeded_is_found(tmp_path, quiet, monkeypatch, method, nothing, found):
    monkeypatch.setattr(NoiseJournal, method, lambda *_: nothing)
    setup, undisturbed, crossed = quiet("dgd", "n0")
    k = crossed.index("log", crossed.index("note")) + 1  # the record of the step after it
    assert any(found in w for w in failed_at(tmp_path, setup, "n0", "before", k, undisturbed))


def test_a_note_that_finds_no_space_ends_the_process_and_not_the_run(tmp_path, quiet, monkeypatch):
    """Its disk need not be the ledger's, which would take the run's end."""
    setup, undisturbed, _ = quiet("dgd", "n0")
    pwrite, first = os.pwrite, [True]

    def full(fd, blob, at):
        note = os.readlink(f"/proc/self/fd/{fd}").endswith(".drawn")
        return 0 if note and first and first.pop() else pwrite(fd, blob, at)

    monkeypatch.setattr(os, "pwrite", full)
    fleet = Fleet(monkeypatch, tmp_path, setup, "n0")
    assert fleet.to_the_end() == undisturbed
    assert [code for code, _ in fleet.exits] == [4]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RAW)
def test_what_fails_at_any_boundary_loses_no_outcome_and_no_spend(tmp_path, quiet, name, kind):
    assert all_failed(tmp_path, quiet, name, victim_of(name), kind, lambda n: range(1, n + 1)) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", CRASHES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_coordinator_that_dies_at_any_boundary_loses_nobody_an_outcome(tmp_path, quiet, name, kind):
    assert all_failed(tmp_path, quiet, name, COORDINATOR, kind, lambda n: range(1, n + 1)) == {}
