"""The benchmarks that run through a broker, on tiny sizes: they say what they promise."""

import multiprocessing
import os
from importlib.util import find_spec

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.benchmarks import daemon, day, fleet, hop, idle, ledger, masks, opf, ring
from hushgrid.lab.benchmarks.common.bare import BARE_COMMIT, BLOCK, WARM
from hushgrid.lab.studies.papers import figures
from tests.support.paths import ROOT
from tests.support.runs.bench_output import _names, _well_formed


@pytest.fixture(autouse=True)
def _from_the_repository(monkeypatch):
    monkeypatch.setattr(figures, "SOURCES", ROOT / figures.SOURCES)


@pytest.mark.mosquitto
def test_a_round_is_measured_on_both_brokers_against_bare_messages_and_leaves_no_process(mosquitto):
    table = fleet.rounds(rounds=25, nodes=2)
    _well_formed(table)
    parts = [
        "hushgrid",
        "bare paho",
        BARE_COMMIT,
        *(f"processor time {p}" for p in ("an answer at a node", "a round at the coordinator")),
    ]
    assert [n.split(",")[0] for n in _names(table)] == parts * 2
    assert [r.target for r in table.rows[:5]] == ["<= 1.8x, never above 2.7x", None, None, "<= 0.6 ms", None]
    ours, bare, commit, node, coordinator = table.rows[:5]
    assert (ours.rival, ours.samples) == (bare.what, 25 - WARM)  # the end is a step too
    assert (bare.samples, commit.samples) == (BLOCK, BLOCK)
    assert node.samples == 2
    assert 0 < node.value < 1e3 * ours.value
    assert coordinator.value > 0
    assert multiprocessing.active_children() == []


def test_a_run_through_a_broker_is_measured_inside_and_as_a_whole():
    table = fleet.case118(rounds=5, local_updates=1, case="case14")
    _well_formed(table)
    inside, whole = table.rows
    assert inside.target == "<= 10 s"
    assert whole.what.startswith("whole call")


def test_a_dispatch_of_zones_is_measured_with_its_parts_beside_published_figures_and_the_bare_solver():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    table = opf.opf({"5": opf.Asked("case5", 2, 1.0, {"s": 2.0, "rounds": 3})})
    _well_formed(table)
    whole, theirs, ac, alone, each, rounds, *rest = table.rows
    assert (whole.target, whole.rival, whole.ratio) == ("<= 1 s", theirs.what, pytest.approx(whole.value / 2))
    assert whole.value > ac.value > alone.value > 0
    assert each.samples == rounds.value - 2
    assert "the AC problem distributed" in theirs.what
    assert table.summary.startswith("zones solve the relaxation (SOC), one AC optimal power flow at the end")
    assert next(r for r in rest if r.unit == "%").value == pytest.approx(0, abs=0.1)
    assert next(r for r in rest if r.what.endswith("a zone's step")).target == "<= 1.3x"
    assert multiprocessing.active_children() == []


@pytest.mark.long
@pytest.mark.mosquitto
def test_a_day_is_measured_whole_a_step_beside_the_bare_solver_and_its_daemons_by_their_most_memory(mosquitto):
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")
    table = day.day(("case14",), steps=3)
    _well_formed(table)
    whole, processor, rounds, step, bare, ready, planned = table.rows
    assert (step.samples, bare.samples, step.rival) == (6, 6, bare.what)  # each zone's but the first
    assert whole.value > 0 < processor.value
    assert rounds.value > 3
    assert 20 < ready.value <= planned.value
    assert [row.target for row in (step, planned)] == ["<= 1.5x", "<= 300 MB"]
    assert multiprocessing.active_children() == []


def test_hundreds_of_nodes_are_measured_in_a_process_a_core():
    table = fleet.nodes(count=20, activations=200)
    _well_formed(table)
    assert table.summary.startswith("200 activations of 20 nodes")
    assert table.rows[0].what.startswith("whole call")


@pytest.mark.long
@pytest.mark.mosquitto
def test_a_hop_is_measured_on_both_brokers_against_a_bare_message_and_a_bare_commit(mosquitto):
    table = hop.hop(hops=hop.WARM + 5, rings=(3,))
    _well_formed(table)
    each = ["hop", "half a bare paho ping-pong", BARE_COMMIT, "both of them", "processor time an answer at a node"]
    assert [n.split(",")[0] for n in _names(table)] == [*each, "processor time a hop at the coordinator"] * 4
    ours, way, commit, both, node, _ = table.rows[:6]
    assert (ours.rival, ours.samples) == (both.what, 5)
    assert ours.target == "<= 2x, never above 2.8x"
    assert (way.samples, commit.samples, node.samples) == (BLOCK, BLOCK, 3)
    assert both.value == way.value + commit.value
    assert node.target == "<= 0.6 ms"
    assert multiprocessing.active_children() == []


@pytest.mark.long
@pytest.mark.mosquitto
def test_a_round_on_a_ring_is_measured_on_both_brokers_against_the_bare_exchange(mosquitto):
    table = ring.ring(rounds=ring.WARM + 5, nodes=5, hands=2)
    _well_formed(table)
    first = [n.split(",")[0] for n in _names(table)]
    each = ["round", "round", "bare paho"]
    assert first == [*each * 2, "messages a round", "bytes a round", "bytes a round", "one bare SQLite commit (WAL"]
    assert [r.rival for r in table.rows[:6]] == [*[table.rows[2].what] * 2, None, *[table.rows[5].what] * 2, None]
    assert [r.samples for r in table.rows[:6]] == [4] * 6
    assert (table.rows[6].value, table.rows[6].ratio) == (5.0, 1.0)  # one message of each node
    assert multiprocessing.active_children() == []


@pytest.mark.long
def test_daemons_at_rest_have_loaded_nothing_heavy():
    table = daemon.daemons(starts=1)
    _well_formed(table)
    names = ["case14 z1", "rows, numpy", *(["rows, numba"] if find_spec("numba") else [])]
    small = [r for r in table.rows if " in 48 MB, 5% of a processor: " in r.what]
    assert [r.unit for r in small] in ([], ["s", "MB"])
    of = {name: [r for r in table.rows if r.what.startswith(f"{name}:")] for name in names}
    assert sum(len(rows) for rows in of.values()) == len(table.rows) - len(small)
    for name, most in zip(names, (65, 50, 180), strict=False):
        bars = [f"<= {most} MB"] * 2
        assert [r.target for r in of[name]] == ["<= 1 s", *bars, None, "<= 0"]
        *_, modules, heavy = of[name]
        assert modules.value > 100  # the list was read
        assert heavy.value == 0, heavy.what


def test_bytes_are_counted_on_a_disk_of_its_own_and_a_long_past_is_opened_by_another_process():
    table = ledger.ledger(commits=40, runs=3, spends=20_000)
    _well_formed(table)
    units = [r.unit for r in table.rows]
    assert units in (["ms", "kB", "kB", "s", "ms", "MB", "ms"], ["ms", "s", "ms", "MB", "ms"])  # no disk that counts
    if os.geteuid() == 0:
        assert table.summary.endswith("bytes on a disk of its own")
    memory = next(r for r in table.rows if r.unit == "MB")
    assert (memory.target, memory.value > 0) == ("<= 50 MB", True)


@pytest.mark.long
def test_a_ledger_of_millions_of_spends_takes_no_memory(tmp_path):
    ledger.of_spends(tmp_path / "n0.ledger", 5_000_000)
    assert ledger.opened(tmp_path / "n0.ledger").memory < 50e6


@pytest.mark.long
@pytest.mark.mosquitto
def test_daemons_that_stand_are_measured_one_by_one_with_a_broker_and_without(monkeypatch):
    monkeypatch.setenv(idle.SECONDS, "0.5")
    table = idle.idle(settle=0.0)
    _well_formed(table)
    standing = {r.what.partition(":")[0] for r in table.rows if "written in a run" not in r.what}
    assert len(standing) == len({f"{what}, {where}" for what, where in (one.split(", ") for one in standing)}) == 8
    assert {one.split(", ")[0] for one in standing} == {"zone", "sensor", "coordinator"}
    assert {r.target for r in table.rows if r.what.endswith("wake-ups a minute")} == {"<= 20"}
    zone = {r.what.partition(": ")[2]: r for r in table.rows if r.what.startswith("zone, the run over")}
    assert zone["resident memory"].target == "<= 65 MB"
    assert zone["resident memory"].value > zone["private memory"].value > 10


def test_how_long_is_measured_is_said_in_seconds(monkeypatch):
    monkeypatch.setenv(idle.SECONDS, "an hour")
    with pytest.raises(InputError, match=r"HUSHGRID_BENCH_IDLE_S: found 'an hour', expected seconds above 0"):
        idle.idle()


@pytest.mark.long
@pytest.mark.mosquitto
def test_masked_rounds_are_measured_through_a_broker_and_in_a_process_of_their_own(mosquitto):
    pytest.importorskip("cryptography")
    table = masks.masks(sizes=(3,), wired=(3,), rounds=6, repeats=2)
    _well_formed(table)
    assert [r.unit for r in table.rows[-3:]] == ["MB"] * 3
    assert sum("mosquitto" in n and ": " not in n for n in _names(table)) == 2
