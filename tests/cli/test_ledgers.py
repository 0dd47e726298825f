"""`hushgrid ledger`: what a device has spent, and what its owner accepts."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_marks import TORN
from hushgrid.node.privacy.ledger_rows import Spend, counted_of
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import plan
from tests.support.devices.windows import Clock
from tests.support.scenarios.guarded_plans import DELTA, sum_of

# --- ledgers ---


ADJACENCY = "bounded-change 0.01"


def spend(ledger: Ledger, run: bytes, answers: int) -> None:
    first = len(ledger.spends.rows(run))
    rows = [Spend(first + k, "laplace", 0.5, 0.02, 0.04, 2.0**-20, ADJACENCY, "test") for k in range(answers)]
    ledger.commit(run, spends=rows)


def test_a_ledger_shows_what_all_shares_of_masked_sums_are_worth_alone(hushgrid, tmp_path):
    with closing(Ledger(tmp_path / "n1.ledger", "n1")) as ledger:
        for run in (b"r" * 16, b"s" * 16):
            ledger.join(run, b"no plan of ours")
            shares = [Spend(k, "gaussian", 0.1, 1.0, 1.0, 0.1, "replace-one-record", "x", honest=3) for k in (1, 2)]
            ledger.commit(run, spends=[*shares, Spend(3, "gaussian", 0.1, 1.0, 1.0, 0.1, "replace-one-record", "x")])
    expected = gdp_epsilon((2 * 2 * 3 * 0.1**2) ** 0.5, 1e-5)
    said = hushgrid("ledger", "show", tmp_path / "n1.ledger", "--delta", "1e-5")
    assert f", delta 1e-05 (its shares alone: epsilon {expected:.6g}) in 6 gaussian answers" in said.out
    seen = json.loads(hushgrid("ledger", "show", tmp_path / "n1.ledger", "--delta", "1e-5", "--json").out)
    assert seen["totals"][0]["alone"] == pytest.approx(expected, rel=1e-9)
    said = hushgrid("ledger", "show", tmp_path / "n1.ledger", "--delta", "0")
    assert "(its shares alone: unbounded epsilon)" in said.out


def test_a_ledger_shows_at_how_many_honest_shares_a_run_was_counted(hushgrid, tmp_path):
    """The plan relies on 498 honest ones and claims .096; the device's owner believed in five."""
    counted = sum_of(500, 2, 0.0961)
    mu = counted.terms.per_answer * (498 / 5) ** 0.5
    with closing(Ledger(tmp_path / "n0.ledger", "n0")) as ledger:
        ledger.join(b"r" * 16, encode_plan(counted))
        ledger.commit(b"r" * 16, spends=[Spend(1, "gaussian", mu, 1.0, 1.0, 0.1, "replace-one-record", "x", honest=5)])
    said = hushgrid("ledger", "show", tmp_path / "n0.ledger")
    epsilon = gdp_epsilon(mu, DELTA)
    assert f"epsilon {epsilon:.6g}, delta 1e-05 at 5 honest, where the plan says 498 (its shares alone:" in said.out
    seen = json.loads(hushgrid("ledger", "show", tmp_path / "n0.ledger", "--json").out)
    (row,), (total,) = seen["runs"], seen["totals"]
    assert (row["honest"], row["honest_of_plan"]) == (5, 498)
    assert total["epsilon"] == pytest.approx(epsilon)
    assert row["alone"] == pytest.approx(total["alone"]) == pytest.approx(gdp_epsilon(mu * 5**0.5, DELTA))


def test_a_ledger_shows_what_graphs_of_masks_have_added_to_delta(hushgrid, tmp_path):
    """Booked with the key of each such run, over its life; what was lost with another copy is not known."""
    path = tmp_path / "n0.ledger"
    with closing(Ledger(path, "n0")) as ledger:
        ledger.join(b"q" * 16, b"no plan of ours")
        ledger.runs.key(b"q" * 16, lambda: b"key")
    assert "graphs of masks" not in hushgrid("ledger", "show", path).out
    with closing(Ledger(path, "n0")) as ledger:
        for run in (b"r" * 16, b"s" * 16):
            ledger.join(run, b"no plan of ours")
            ledger.runs.key(run, lambda: b"key", 1e-9)
    added = "graphs of masks have added at most 2e-09 to delta, over its life"
    assert f"\n{added}\n" in hushgrid("ledger", "show", path).out
    assert json.loads(hushgrid("ledger", "show", path, "--json").out)["exposed"] == pytest.approx(2e-9, rel=1e-12)
    with closing(Ledger(path, "n0")) as ledger:
        ledger.marks.tell(Mark(ledger.id, 3))
        ledger.accept()
    assert f"\n{added}, beside what was lost\n" in hushgrid("ledger", "show", path).out


def test_a_ledger_shows_what_shares_of_sites_are_worth_to_whom(hushgrid, tmp_path):
    """h = 198 and h_s = 8: three numbers, to the last of their digits."""
    mu = 0.1
    with closing(Ledger(tmp_path / "n1.ledger", "n1")) as ledger:
        ledger.join(b"r" * 16, b"no plan of ours")
        shares = [Spend(1, "gaussian", mu, 1.0, 1.0, 0.1, "replace-one-record", "x", honest=counted_of(198, 8))]
        ledger.commit(b"r" * 16, spends=shares)
    fleet, site, alone = (gdp_epsilon(mu * times**0.5, 1e-5) for times in (1, 198 / 8, 198))
    said = hushgrid("ledger", "show", tmp_path / "n1.ledger", "--delta", "1e-5").out
    assert (
        f"spent epsilon {fleet:.6g}, delta 1e-05 (its site's coordinator sees: epsilon {site:.6g}) "
        f"(its shares alone: epsilon {alone:.6g}) in 1 gaussian answers" in said
    )
    (total,) = json.loads(hushgrid("ledger", "show", tmp_path / "n1.ledger", "--delta", "1e-5", "--json").out)["totals"]
    assert [total[key] for key in ("epsilon", "at_site", "alone")] == pytest.approx([fleet, site, alone], rel=1e-10)


@pytest.fixture
def restored(tmp_path) -> Path:
    """A ledger with 2 spends, put back from a copy after a third and a fourth were made; beside it, its mark."""
    path, mark = tmp_path / "n1.ledger", tmp_path / "n1.mark"
    ledger = Ledger(path, "n1", mark)
    ledger.join(b"r" * 16, b"no plan of ours")
    spend(ledger, b"r" * 16, 2)
    ledger.close()
    shutil.copy(path, tmp_path / "old")
    ledger = Ledger(path, "n1", mark)
    spend(ledger, b"r" * 16, 2)
    ledger.close()
    (tmp_path / "old").replace(path)
    return path


def test_a_ledger_shows_what_was_spent_on_what_and_reading_it_changes_nothing(hushgrid, restored, tmp_path):
    state = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}, tmp_path.stat().st_mtime_ns
    said = hushgrid("ledger", "show", restored)
    assert said.code == 0
    for fragment in ("of n1", "2 spends, mark 2", f"adjacency {ADJACENCY}: spent epsilon 1 in 2 laplace answers"):
        assert fragment in said.out
    seen = json.loads(hushgrid("ledger", "show", restored, "--mark", tmp_path / "n1.mark", "--json").out)
    assert (seen["node"], seen["mark"], seen["behind"]) == ("n1", 2, 4)
    hushgrid("ledger", "verify", restored, "--mark", tmp_path / "n1.mark")
    assert state == (
        {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}, tmp_path.stat().st_mtime_ns
    )  # fmt: skip


def test_what_is_left_is_told_to_who_names_the_devices_configuration(hushgrid, restored, tmp_path):
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\nmark: n1.mark\ndata: {case: case14, zone: [1], "
        "loads: l.csv}\n"
        "budget: {epsilon: 4.0, adjacency: {bounded-change: 0.01}}\n"
    )
    (total,) = json.loads(hushgrid("ledger", "show", "n1.yaml", "--json").out)["totals"]
    assert (total["epsilon"], total["budget"], total["left"]) == (1.0, 4.0, 3.0)
    assert hushgrid("ledger", "verify", "n1.yaml").code == 2


def test_an_accepted_gap_is_recorded_and_counts(hushgrid, restored, tmp_path):
    mark = ["--mark", tmp_path / "n1.mark"]
    said = hushgrid("ledger", "verify", restored, *mark)
    assert said.code == 2
    assert said.out == "behind its mark: spend 2, the mark says 4\n"
    assert said.err == f"hushgrid: {restored}: found 1 problem, expected a whole ledger\n"
    said = hushgrid("ledger", "accept", restored, *mark)
    assert said.code == 0
    assert "spends 3 to 4 recorded as lost and spent: epsilon 1" in said.out
    assert hushgrid("ledger", "verify", restored, *mark).code == 0
    (total,) = json.loads(hushgrid("ledger", "show", restored, "--json").out)["totals"]
    assert (total["epsilon"], total["gaps"]) == (2.0, 1)
    assert "nothing to accept" in hushgrid("ledger", "accept", restored, *mark).out


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_lost_gaussian_answers_are_accepted_by_their_mu_and_the_epsilon_that_it_is(hushgrid, tmp_path, delta):
    """They were said to be "epsilon 0"."""
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\nmark: n1.mark\n"
        "data: {case: case14, zone: [1], loads: l.csv}\n"
        f"budget: {{epsilon: 9.0{f', delta: {delta}' if delta else ''}, adjacency: {{bounded-change: 0.01}}}}\n"
    )
    mu = 0.15
    with closing(Ledger(tmp_path / "n1.ledger", "n1", tmp_path / "n1.mark")) as ledger:
        ledger.marks.tell(Mark(ledger.id, 199, mu2=199 * mu**2))
    said = hushgrid("ledger", "accept", "n1.yaml")
    assert said.code == 0, said.err
    total = mu * 199**0.5
    epsilon = gdp_epsilon(total, delta or 1e-5)
    assert f"spends 1 to 199 recorded as lost and spent: mu {total:.4g}, epsilon {epsilon:.4g} at delta " in said.out
    assert said.out.endswith(f"{delta or 1e-5:g} in 199 answers, under every adjacency\n")


def test_lost_answers_of_both_kinds_are_accepted_by_both(hushgrid, tmp_path):
    with closing(Ledger(tmp_path / "n1.ledger", "n1")) as ledger:
        ledger.marks.tell(Mark(ledger.id, 3, epsilon=1.0, mu2=4.0))
        ledger.marks.tell(Mark(b"another", 2, epsilon=0.5))
    said = hushgrid("ledger", "accept", "n1.ledger")
    assert "spends 1 to 4 recorded as lost and spent: epsilon 1.5 and mu 2, together epsilon " in said.out
    assert said.out.endswith(" at delta 1e-05 in 5 answers, under every adjacency\n")


def test_a_ledger_without_its_mark_says_so_until_its_owner_accepts(hushgrid, restored, tmp_path):
    mark = ["--mark", tmp_path / "n1.mark"]
    hushgrid("ledger", "accept", restored, *mark)
    (tmp_path / "n1.mark").unlink()
    seen = json.loads(hushgrid("ledger", "show", restored, *mark, "--json").out)
    assert seen["refuses"] == f"without its mark: {tmp_path / 'n1.mark'} is gone"
    assert "it refuses every run, see 'hushgrid ledger accept'" in hushgrid("ledger", "show", restored, *mark).out
    assert hushgrid("ledger", "verify", restored, *mark).code == 2
    assert "nothing was lost, the mark is written again" in hushgrid("ledger", "accept", restored, *mark).out
    assert hushgrid("ledger", "verify", restored, *mark).code == 0
    said = hushgrid("ledger", "verify", shutil.copy(restored, tmp_path / "c.ledger"), "--mark", tmp_path / "typo")
    assert (said.code, said.out) == (2, f"without its mark: {tmp_path / 'typo'} is gone\n")


def test_an_owner_accepts_though_the_folder_of_the_mark_is_gone(hushgrid, restored, tmp_path):
    mark = tmp_path / "away" / "n1.mark"
    assert hushgrid("ledger", "verify", restored, "--mark", mark).out == f"without its mark: {mark} is gone\n"
    assert "nothing was lost, the mark is written again" in hushgrid("ledger", "accept", restored, "--mark", mark).out
    assert hushgrid("ledger", "verify", restored, "--mark", mark).code == 0


@pytest.mark.parametrize("budget", [None, 4.0])
def test_a_gap_that_is_all_that_was_spent_is_shown(hushgrid, tmp_path, budget):
    """It counts under every relation: under the budget's, or under no relation by name."""
    with closing(Ledger(tmp_path / "n1.ledger", "n1")) as ledger:
        ledger.marks.tell(Mark(ledger.id, 3, 2.0))
        ledger.accept()
    file = "n1.ledger"
    if budget:
        file = "n1.yaml"
        (tmp_path / file).write_text(
            "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\ndata: {case: case14, zone: [1], loads: l.csv}\n"
            f"budget: {{epsilon: {budget}, adjacency: {{bounded-change: 0.01}}}}\n"
        )
    (total,) = json.loads(hushgrid("ledger", "show", file, "--json").out)["totals"]
    assert (total["adjacency"], total["epsilon"], total["gaps"]) == ("bounded-change 0.01" if budget else "", 2.0, 1)
    said = hushgrid("ledger", "show", file).out
    under = "adjacency bounded-change 0.01" if budget else "under every adjacency"
    left = "; budget 4, left 2" if budget else ""
    assert f"{under}: spent epsilon 2 in 1 accepted gaps{left}\n" in said


def test_a_copy_without_its_log_is_accepted_by_its_owner(hushgrid, tmp_path):
    with closing(Ledger(tmp_path / "n2.ledger", "n2")) as ledger:
        copy = shutil.copy(ledger.path, tmp_path / "copy.ledger")
    words = TORN
    assert f"{words}: it refuses every run" in hushgrid("ledger", "show", copy).out
    said = hushgrid("ledger", "verify", copy)
    assert (said.code, said.out) == (2, f"{words}\n")
    assert hushgrid("ledger", "accept", copy).out == f"{copy}: was {words}; what was lost, nobody knows\n"
    assert hushgrid("ledger", "verify", copy).code == 0


def test_one_relation_is_one_number(hushgrid, tmp_path):
    ledger = Ledger(tmp_path / "n1.ledger", "n1")
    ledger.join(b"r" * 16, b"")
    for k, adjacency in enumerate(["bounded-change 0.01", "bounded-change 0.005", "replace-one-record"]):
        ledger.commit(b"r" * 16, spends=[Spend(k + 1, "laplace", 0.5, 0.02, 0.04, 2.0**-20, adjacency, "test")])
    ledger.close()
    totals = json.loads(hushgrid("ledger", "show", "n1.ledger", "--json").out)["totals"]
    assert {t["adjacency"]: (t["answers"], t["epsilon"]) for t in totals} == {
        "bounded-change 0.01": (2, 0.5 + 2 * 0.5), "replace-one-record": (1, 0.5)
    }  # fmt: skip
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\ndata: {case: case14, zone: [1], loads: l.csv}\n"
        "budget: {epsilon: 9.0, adjacency: {bounded-change: 0.02}}\n"
    )
    (total, _) = json.loads(hushgrid("ledger", "show", "n1.yaml", "--json").out)["totals"]
    assert (total["adjacency"], total["epsilon"], total["left"]) == ("bounded-change 0.02", 3.0, 6.0)


def test_each_kind_of_change_is_a_relation_of_its_own_and_none_is_converted(hushgrid, tmp_path):
    """Pairs of two sizes, and shares of two files, stand side by side; a mark counts each answer once."""
    ledger = Ledger(tmp_path / "n1.ledger", "n1")
    ledger.spends.count_at("bounded-change 0.02")
    ledger.join(b"r" * 16, b"")
    kinds = [
        "bounded-change 0.01",
        "pair-change:0.01:0.95",
        "pair-change:0.005:0.95",
        "relative-change:0.05:0123456789ab",
    ]
    for k, adjacency in enumerate(kinds):
        ledger.commit(b"r" * 16, spends=[Spend(k + 1, "laplace", 0.5, 0.02, 0.04, 2.0**-20, adjacency, "test")])
        ledger.spends.count_at(adjacency)
    assert ledger.spends.unit == 0.02
    assert ledger.mark.epsilon == 2 * 0.5 + 3 * 0.5
    assert [ledger.spends.totals(a).epsilon for a in kinds] == [0.5] * 4
    ledger.close()
    totals = json.loads(hushgrid("ledger", "show", "n1.ledger", "--json").out)["totals"]
    assert {t["adjacency"]: t["epsilon"] for t in totals} == dict.fromkeys(kinds[1:], 0.5) | {
        "bounded-change 0.02": 1.0
    }
    assert ("adjacency pair-change:0.01:0.95: spent epsilon 0.5 in 1 laplace "
           "answers") in hushgrid("ledger", "show", "n1.ledger").out  # fmt: skip
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\ndata: {case: case14, zone: [1], loads: l.csv}\n"
        "budget: {epsilon: 9.0, adjacency: {bounded-change: {pair: 0.01, power_factor: 0.95}}}\n"
    )
    totals = json.loads(hushgrid("ledger", "show", "n1.yaml", "--json").out)["totals"]
    assert {t["adjacency"]: t["left"] for t in totals}["pair-change:0.01:0.95"] == 8.5
    assert [t["left"] for t in totals].count(None) == 3


def test_new_data_are_said_by_their_owner(hushgrid, restored, tmp_path):
    said = hushgrid("ledger", "new-data", restored)
    assert said.out == f"{restored}: its data are version 2 now; no earlier answer is repeated\n"
    (tmp_path / "n1.yaml").write_text(
        "node: n1\nfleet: f\nbroker: mqtt://localhost\nstate: .\ndata: {case: case14, zone: [1], loads: l.csv}\n"
        "budget: {epsilon: 4.0, adjacency: {bounded-change: 0.01}}\n"
    )
    assert "version 3 now" in hushgrid("ledger", "new-data", "n1.yaml").out
    assert json.loads(hushgrid("ledger", "show", restored, "--json").out)["data_version"] == 3
    said = hushgrid("ledger", "new-data", "no.ledger")
    assert (said.code, said.err) == (2, "hushgrid: no.ledger: No such file or directory, expected a ledger\n")
    assert not (tmp_path / "no.ledger").exists()


def test_what_a_coordinator_named_its_plan_cannot_command_a_terminal(hushgrid, tmp_path):
    name = "x\x1b]0;owned\x07\n" + "y" * 10_000
    ledger = Ledger(tmp_path / "n1.ledger", "n1")
    ledger.join(b"r" * 16, encode_plan(msgspec.structs.replace(plan(), name=name)))
    spend(ledger, b"r" * 16, 1)
    ledger.close()
    said = hushgrid("ledger", "show", "n1.ledger").out
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "owned" not in said  # no plan has such a name: it cannot be read, and nothing of it is shown
    assert len(said) < 1000


def test_a_ledger_with_a_hole_is_found_out(hushgrid, restored):
    with sqlite3.connect(restored) as db:
        db.execute("DELETE FROM spend WHERE no = 1")
    db.close()
    said = hushgrid("ledger", "verify", restored)
    assert (said.code, said.out) == (2, "spends 1 to 1 are missing\n")


def test_another_database_is_no_ledger(hushgrid, tmp_path):
    with sqlite3.connect(tmp_path / "x.ledger") as db:
        db.execute("CREATE TABLE cats (name TEXT)")
    db.close()
    said = hushgrid("ledger", "show", "x.ledger")
    assert (said.code, said.out) == (2, "")
    assert (
        said.err
        == "hushgrid: x.ledger: found no ledger's tables (cut short, or copied without its -wal), expected a whole "
        "ledger\n"
    )


def test_a_budget_that_renews_shows_what_window_and_life_have_left(hushgrid, tmp_path):
    (tmp_path / "n1.yaml").write_text(
        "{node: n1, fleet: f, broker: mqtt://127.0.0.1, state: ., data: n1.npz, labels: {classes: 2}, "
        "problem: {kind: logistic, scale: 1.0, row_bound: 1.0}, "
        "budget: {epsilon: 2.0, window: 24h, lifetime: 10.0, adjacency: {bounded-change: 0.01}}}"
    )
    clock = Clock()
    ledger = Ledger(tmp_path / "n1.ledger", "n1", clock=clock)
    for _ in range(3):
        ledger.new_data()
        ledger.join(b"r" * 16, b"no plan of ours")
        spend(ledger, b"r" * 16, 3)
        clock.pass_(20 * 3600.0)
    ledger.close()
    said = hushgrid("ledger", "show", "n1.yaml").out
    assert (
        "spent epsilon 4.5 in 9 laplace answers; budget 2 in any 24h of running time: spent there 1.5, left 0.5, the "
        "earliest leaves it in 4h of running time; lifetime 10, left 5.5" in said
    )
    (total,) = json.loads(hushgrid("ledger", "show", "n1.yaml", "--json").out)["totals"]
    assert (total["epsilon"], total["left"], total["window"]["left"]) == (4.5, 0.5, 0.5)
