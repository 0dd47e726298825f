"""What a finding is shrunk to, and what the command says."""

import os

import msgspec
import pytest

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.cli.researcher import simulate as command
from hushgrid.kernels.errors import InputError
from hushgrid.lab.simulate import checker, front, search, simulation
from hushgrid.lab.simulate.checker import Finding
from hushgrid.lab.simulate.faults import Fault
from hushgrid.lab.simulate.patterns import SCENARIOS, made
from hushgrid.lab.simulate.search import Broken, Life, fewest

FAULTS = [Fault(float(k), "kill") for k in range(100)]


def test_a_list_is_shrunk_to_the_two_faults_that_matter():
    lives = []

    def breaks(faults):
        lives.append(len(faults))
        return {17.0, 62.0} <= {fault.moment for fault in faults}

    assert [fault.moment for fault in fewest(FAULTS, breaks)] == [17.0, 62.0]
    assert len(lives) <= search.PATIENCE


def test_a_fault_just_before_is_found_at_once():
    lives = []

    def breaks(faults):
        lives.append(faults)
        return any(fault.moment == 98.0 for fault in faults)

    assert [fault.moment for fault in fewest(FAULTS, breaks)] == [98.0]
    assert len(lives) < 8


def test_what_needs_no_fault_is_shrunk_to_none():
    assert fewest(FAULTS, lambda faults: True) == []


def test_the_patience_is_the_most_lives():
    lives = []

    def breaks(faults):
        lives.append(faults)
        return len(faults) > 50

    assert len(fewest(FAULTS, breaks, 5)) > 50
    assert len(lives) <= 5


def test_a_process_that_starts_again_and_again_is_three_events_of_a_trace():
    events = [{"e": "fault", "who": "n0"}]
    for number in range(5):
        events += [{"e": kind, "who": "n0", "number": number} for kind in ("start", "error", "exit")]
    shown = search.trace([*events, {"e": "unanswered", "who": "n1"}], Finding("answered", len(events), "n1", ""))
    assert [(e["e"], e.get("number"), e.get("times")) for e in shown] == [
        ("fault", None, None),
        ("start", 4, 5),
        ("error", 4, None),
        ("exit", 4, None),
        ("unanswered", None, None),
    ]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"faults": 0}, "--faults: found 0, expected at least 1"),
        ({"days": -1}, "--days: found -1, expected at least 1"),
        ({"jobs": 0}, "--jobs: found 0, expected at least 1"),
    ],
)
def test_what_it_cannot_do_is_one_line(keys, line):
    with pytest.raises(InputError) as caught:
        front.simulate([], **keys)
    assert str(caught.value) == line


def test_a_file_that_is_no_finding_is_one_line(tmp_path):
    path = tmp_path / "finding.json"
    with pytest.raises(InputError, match="No such file or directory, expected a file of hushgrid simulate"):
        front.replay(path)
    path.write_text("{}")
    with pytest.raises(InputError, match=r"finding.json: found .*, expected a file of hushgrid simulate"):
        front.replay(path)


@pytest.mark.runs
def test_a_broken_promise_is_exit_code_1_and_its_file_breaks_it_again(tmp_path, monkeypatch, capsys):
    scenario = tmp_path / "star.yaml"
    scenario.write_bytes(msgspec.json.encode(SCENARIOS["star"]))
    judge = simulation.Simulation._judge

    def unanswered(self):
        judge(self)
        if any(e["e"] == "kill" for e in self.world.history):
            self.world.note("unanswered", checker.COORDINATOR, text="made up")

    monkeypatch.setattr(simulation.Simulation, "_judge", unanswered)
    options = _options([str(scenario), "--faults", "1", "--jobs", "1", "--out", str(tmp_path)])
    assert command.main(options) == 1
    (file,) = tmp_path.glob("star-1-*.json")
    assert msgspec.json.decode(file.read_bytes(), type=Broken).promise == "answered"
    assert f"hushgrid simulate --replay {file}" in capsys.readouterr().out
    assert command.main(_options(["--replay", str(file)])) == 1
    assert "answered: " in capsys.readouterr().out


def _options(words):
    import argparse

    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return parser.parse_args(words)


#: Faults of each fleet: 10,000 together, of which `.ci/run` tries a part, HUSHGRID_FAULTS.
PART = float(os.environ.get("HUSHGRID_FAULTS", "1"))
TRIED = {"star": 2000, "token": 2000, "neighbours": 2000, "zones": 1000, "sums": 1500, "masked": 1000, "day": 500}


@pytest.mark.runs
@pytest.mark.parametrize("kind", SCENARIOS)
def test_ten_thousand_faults_break_no_promise(kind):
    report = search.search(SCENARIOS[kind], made(kind), round(TRIED[kind] * PART), 1, jobs=1)
    assert [broken.text for broken in report.broken] == []
    assert report.faults >= TRIED[kind] * PART


def test_so_many_are_ten_thousand():
    assert TRIED.keys() == SCENARIOS.keys()
    assert sum(TRIED.values()) == 10_000


@pytest.mark.runs
def test_faults_are_shared_by_fleets(tmp_path):
    paths = [tmp_path / "star.yaml", tmp_path / "sums.yaml"]
    for path in paths:
        path.write_bytes(msgspec.json.encode(SCENARIOS[path.stem]))
    lines: list[str] = []
    reports = front.simulate(paths, faults=40, seed=1, jobs=1, say=lines.append)
    assert [report.faults >= 20 for report in reports] == [True, True]
    assert lines[-1].startswith("2 fleets: ")


@pytest.mark.runs
def test_a_process_that_computes_without_end_is_a_finding(monkeypatch):
    def endless(self, now):
        while True:
            pass

    monkeypatch.setattr(Coordinator, "on_tick", endless)
    monkeypatch.setattr(search, "INTERVAL_S", 0.2)
    _, findings = search.live(made("star"), Life(SCENARIOS["star"], 1, 2, []), {})
    assert [finding.text for finding in findings] == ["0.4 s of a processor: a loop without end"]


def test_a_life_is_a_whole_scenario():
    life = Life({"name": "x"}, 1, 15, FAULTS[:2])
    assert msgspec.json.decode(msgspec.json.encode(life), type=Life) == life


@pytest.mark.runs
def test_an_interrupt_ends_it_and_it_says_what_it_has_tried(monkeypatch, capsys):
    lived = []

    def tried(*life):
        lived.append(life)
        if len(lived) == 2:
            raise KeyboardInterrupt
        return search._Tried(15, 15, 15, 1000, {"lost": 40}, None)

    monkeypatch.setattr(search, "_tried", tried)
    assert command.main(_options(["--faults", "1000", "--jobs", "1"])) == command.INTERRUPTED
    assert "star: 2 lives, 17 intervals" in (lines := capsys.readouterr().out)
    assert "token" not in lines
