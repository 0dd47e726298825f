"""Intervals in two levels: one run each, a record each, m sites and s devices of a site, and nobody pays twice."""

import pytest

from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again, RowFleet, record
from tests.support.runs.continuous_sites import sites_of_three
from tests.support.runs.masked_runs import masked

pytestmark = pytest.mark.runs
ALL = [f"n{i}" for i in range(9)]
FIRST, SECOND, THIRD = ALL[:3], ALL[3:6], ALL[6:]


def more(fleet, before):
    """What each device has answered since."""
    return {node: answers - before[node] for node, answers in fleet.paid().items()}


def test_each_interval_is_one_run_that_begins_where_the_last_has_ended(tmp_path):
    """Bit for bit as in one level."""
    fleet = sites_of_three(tmp_path)
    privacy = {"epsilon": 1e9, "answers": 6, "masked": {"corrupt": 0}}
    raw = masked(tmp_path / "rows1", nodes=9, privacy=privacy, algorithm={"rounds": 2})
    flat = RowFleet(tmp_path / "flat", raw)
    for start in ("cold", "warm", "warm"):
        row, same = fleet.interval(), flat.interval()
        assert (row["outcome"], row["start"], row["rounds"]) == ("answer", start, 2)
        assert fleet.w.tobytes() == flat.w.tobytes()
        assert record(fleet, row)["members"] == ["s1", "s2", "s3"]
        assert same["outcome"] == "answer"
    assert fleet.paid() == dict.fromkeys(ALL, 6)


def test_a_site_that_is_not_there_is_left_out_and_comes_back(tmp_path):
    fleet = sites_of_three(tmp_path, m=2, quorum=2)
    fleet.goes("s2")
    row = fleet.interval()
    assert (row["outcome"], row["absent"]) == ("answer", ["s2"])
    assert fleet.paid() == dict.fromkeys((*FIRST, *THIRD), 2) | dict.fromkeys(SECOND, 0)
    fleet.comes("s2")
    assert fleet.interval()["absent"] == []
    assert fleet.paid() == dict.fromkeys((*FIRST, *THIRD), 4) | dict.fromkeys(SECOND, 2)


def test_a_site_that_falls_silent_leads_to_the_smaller_set_with_fresh_answers(tmp_path):
    """The others answer the round again, and pay again: 2 rounds, 3 answers."""
    fleet = sites_of_three(tmp_path, m=2, quorum=2)

    def silent(made):
        if "s2" in made.hub.endpoints and made.centre.driver and made.centre.driver.machine.state.phase == "ask":
            made.goes("s2")

    row = fleet.interval(silent)
    assert (row["outcome"], row["rounds"]) == ("answer", 2)
    assert fleet.centre.driver.machine.state.summed == sorted((*FIRST, *THIRD))
    assert {fleet.paid()[node] for node in (*FIRST, *THIRD)} == {3}


def test_with_fewer_sites_than_m_the_interval_is_missed_and_the_next_one_answers(tmp_path):
    fleet = sites_of_three(tmp_path)
    fleet.goes("s2")
    row = fleet.interval()
    assert (row["outcome"], row["cause"], row["absent"]) == ("missed", "absent", ["s2"])
    assert "s2 not there" in row["reason"]
    assert fleet.paid() == dict.fromkeys(ALL, 0)
    fleet.comes("s2")
    assert fleet.interval()["outcome"] == "answer"
    assert fleet.paid() == dict.fromkeys(ALL, 2)


def test_a_site_makes_its_run_of_s_devices_and_is_silent_with_fewer(tmp_path):
    fleet = sites_of_three(tmp_path, m=2, s=2, quorum=2)
    fleet.goes("n0")
    row = fleet.interval()
    assert (row["outcome"], row["absent"]) == ("answer", [])
    assert fleet.centre.driver.machine.state.summed == ALL[1:]
    fleet.goes("n1")
    before = fleet.paid()
    assert fleet.interval()["outcome"] == "answer"
    assert fleet.centre.driver.machine.state.summed == ALL[3:]
    assert more(fleet, before) == dict.fromkeys(FIRST, 0) | dict.fromkeys((*SECOND, *THIRD), 3)
    assert any("n0, n1 not there" in line for line in fleet.logs["s1"])
    fleet.comes("n0")
    fleet.comes("n1")
    assert fleet.interval()["outcome"] == "answer"
    assert fleet.centre.driver.machine.state.summed == ALL


@pytest.mark.parametrize("who", [COORDINATOR, "s1", "n4"])
def test_whoever_starts_again_at_any_message_the_bits_are_the_same_and_nobody_pays_twice(tmp_path, who):
    calm = sites_of_three(tmp_path / "calm")
    calm.interval()
    before = calm.hub.delivered
    calm.interval()
    messages = calm.hub.delivered - before
    for at in range(1, messages, max(messages // 6, 1)):
        fleet = sites_of_three(tmp_path / f"{at}")
        fleet.interval()
        assert fleet.interval(Again(at, who))["outcome"] == "answer", at
        assert fleet.w.tobytes() == calm.w.tobytes(), at
        assert fleet.paid() == dict.fromkeys(ALL, 4), at
        assert fleet.interval()["outcome"] == "answer", at
        assert fleet.paid() == dict.fromkeys(ALL, 6), at


def test_a_site_that_has_begun_without_a_device_goes_on_so_after_a_restart(tmp_path):
    fleet = sites_of_three(tmp_path, m=3, s=2)
    fleet.goes("n0")
    struck = []

    def strike(made):
        lower = made.hub.endpoints["s1"].lower
        if not struck and lower is not None and lower.driver is not None and lower.driver.started:
            struck.append(lower.members)
            made.restarts("s1")
            assert made.hub.endpoints["s1"].lower.members == lower.members

    assert fleet.interval(strike)["outcome"] == "answer"
    assert struck == [FIRST[1:]]
    assert fleet.paid() == {"n0": 0} | dict.fromkeys(ALL[1:], 2)


def test_no_interval_is_without_a_line(tmp_path):
    fleet = sites_of_three(tmp_path, m=2, quorum=2)
    fleet.goes("s1")
    fleet.interval()
    fleet.goes("s2")
    fleet.interval()
    lines = (tmp_path / "intervals.csv").read_text().splitlines()
    assert [line.split(",")[3] for line in lines] == ["outcome", "answer", "missed"]


def test_a_site_that_gives_up_in_a_round_leads_to_the_smaller_set_too(tmp_path):
    """With fewer than s devices a site cannot answer; the others answer the round again."""
    fleet = sites_of_three(tmp_path, m=2, quorum=2)

    def gives_up(made):
        if "n0" in made.hub.endpoints and made.centre.driver and made.centre.driver.machine.state.round == 1:
            made.goes("n0")

    row = fleet.interval(gives_up)
    assert (row["outcome"], row["rounds"], row["refused"]) == ("answer", 2, ["s1"])
    assert fleet.centre.driver.machine.state.summed == sorted((*SECOND, *THIRD))
    assert {fleet.paid()[node] for node in (*SECOND, *THIRD)} == {3}
    fleet.comes("n0")
    assert fleet.interval()["outcome"] == "answer"
    assert fleet.centre.driver.machine.state.summed == ALL
