"""A member that refuses is absent for an interval, by name: the others go on without it, and ask it again, not for
ever.
"""

import pytest

from hushgrid.broker.coordinator.membership import PATIENCE
from hushgrid.node import wire
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.schema.sections import Allow, AllowMasked, Budget
from hushgrid.node.wire import COORDINATOR, Envelope, Mark, Refuse
from tests.support.runs.continuous_fleet import UNWILLING, RowFleet, WeakFleet, budget, record, zones
from tests.support.runs.masked_runs import masked

GONE = "z2"


@pytest.fixture
def fleet(tmp_path):
    made = WeakFleet(tmp_path, zones(3), quorum=2, hold="24h")
    assert made.interval()["outcome"] == "answer"
    yield made
    made.close()


def plans_refused(fleet):
    """How many plans a zone has refused in this session."""
    return len(fleet.member(GONE)._refused)


def refuses_for_long(fleet, *limits, **keys):
    """Until it is not asked any more."""
    fleet.owner(GONE, *limits, **keys)
    for _ in range(PATIENCE):
        assert fleet.interval()["refused"] == [GONE]


def by_consent(fleet):
    fleet.owner(GONE, allow=UNWILLING)


def by_budget(fleet):
    fleet.owner(GONE, budget(1.0))


def by_its_mark(fleet):
    ledger = fleet.ledgers[GONE]
    ledger.marks.tell(Mark(ledger.id, ledger.spends.no + 5, 5.0))


@pytest.mark.parametrize("how", [by_consent, by_budget, by_its_mark])
def test_who_refuses_is_held_and_named(how, fleet):
    how(fleet)
    row = fleet.interval()
    assert (row["outcome"], list(row["held"]), row["absent"], row["refused"]) == ("held", [GONE], [GONE], [GONE])
    assert record(fleet, row)["refused"] == [GONE]
    assert any(line.startswith(f"without {GONE} (held since ") and f"; {GONE}: " in line for line in fleet.log)


def test_it_takes_part_again_once_it_is_willing(fleet):
    fleet.owner(GONE, allow=UNWILLING)
    fleet.interval()
    fleet.owner(GONE)
    row = fleet.interval()
    assert (row["outcome"], row["refused"], row["absent"]) == ("answer", [], [])


@pytest.mark.runs
def test_after_some_refusals_in_a_row_it_is_not_asked_until_its_birth_is_another(fleet):
    refuses_for_long(fleet, allow=UNWILLING)
    before, began = plans_refused(fleet), fleet.hub.now
    for _ in range(4):
        row = fleet.interval()
        assert (row["outcome"], row["refused"]) == ("held", [GONE])
    assert plans_refused(fleet) == before == PATIENCE
    assert fleet.hub.now - began < 4 * 5  # nobody waits for it
    assert sum("times in a row" in line for line in fleet.log) == 1
    fleet.restarts(GONE)
    assert fleet.interval()["refused"] == [GONE]  # another session
    assert plans_refused(fleet) == 1
    fleet.owner(GONE)
    assert fleet.interval()["outcome"] == "answer"


@pytest.mark.runs
def test_an_owner_that_consents_at_a_hang_up_is_asked_at_once(fleet):
    refuses_for_long(fleet, allow=UNWILLING)
    fleet.owner(GONE)
    assert fleet.interval()["outcome"] == "answer"


@pytest.mark.runs
def test_a_birth_with_another_mark_or_other_capabilities_is_asked_once_more(fleet):
    refuses_for_long(fleet, budget(1.0))
    before = plans_refused(fleet)
    fleet.member(GONE).budget = budget(1.5)  # its birth says what is left of it
    assert fleet.interval()["refused"] == [GONE]
    assert plans_refused(fleet) == before + 1
    assert fleet.interval()["refused"] == [GONE]
    assert plans_refused(fleet) == before + 1
    fleet.member(GONE).budget = budget(50.0)
    assert fleet.interval()["outcome"] == "answer"


def test_without_a_quorum_the_interval_is_missed_and_the_cause_named(tmp_path):
    fleet = WeakFleet(tmp_path, zones(3))
    fleet.interval()
    fleet.owner(GONE, allow=UNWILLING)
    for k in range(PATIENCE + 3):
        row = fleet.interval()
        assert (row["outcome"], row["cause"], row["refused"], row["absent"]) == ("missed", "refused", [GONE], [GONE])
        assert f"{GONE}: algorithm ladmm, its owner allows none" in row["reason"]
        assert ("not asked" in row["reason"]) == (k >= PATIENCE)


def test_fewer_than_the_quorum_is_missed_and_names_all_who_refuse(fleet):
    for zone in ("z1", GONE):
        fleet.owner(zone, allow=UNWILLING)
    row = fleet.interval()
    assert (row["outcome"], row["cause"], row["refused"]) == ("missed", "refused", ["z1", GONE])
    assert row["reason"].endswith("1 of 3 there, expected 2")


def test_a_refusal_in_the_rounds_ends_the_run_and_counts_in_the_next_interval(fleet):
    """The plan fits the budget when it is joined; then its owner makes the budget smaller."""
    before = [0]

    def tightened(fleet):
        driver = fleet.centre.driver
        if driver is not None and driver.machine.state.t == 1 and not before[0]:
            before[0] = 1
            member = fleet.member(GONE)
            member.budget_check.tighten(budget(1.0))

    row = fleet.interval(tightened)
    assert (row["outcome"], row["cause"], row["refused"], row["absent"]) == ("missed", "refused", [GONE], [GONE])
    refused_before = plans_refused(fleet)
    row = fleet.interval()
    assert (row["outcome"], row["refused"]) == ("held", [GONE])
    assert plans_refused(fleet) == refused_before  # it has ended a run that the others have paid for
    assert fleet.interval()["outcome"] == "answer"


def test_who_refuses_is_who_says_so_whatever_it_says(fleet):
    """A topic has one owner; a reason has none."""
    lies = []

    def lies_once(fleet):
        centre = fleet.centre
        if centre.phase == "joining" and not lies:
            lies.append(centre.run)
            lie = wire.encode(Envelope(centre.run, 0, 0, None, Refuse("z1: spent epsilon 9, budget 5")))
            for publication in centre.on_message(centre.topics.edge("z3", COORDINATOR), lie):
                fleet.hub.publish([publication])

    row = fleet.interval(lies_once)
    assert (row["outcome"], row["refused"], row["absent"]) == ("held", ["z3"], ["z3"])
    assert any("z3 refuses: z1: spent" in line for line in fleet.log)


@pytest.mark.parametrize("what", ["case digest", "zone"])
def test_a_member_that_does_not_fit_the_plan_is_named_and_left_out(what, fleet):
    """By its birth, or by its own word."""
    member, s = fleet.member(GONE), fleet.setup
    of = "z1" if what == "zone" else GONE
    member.device = Zone(GONE, s.case, s.models[of], fleet.loads[of])
    if what == "case digest":
        member.device._digest = 64 * "0"
    fleet.hub.publish(member.connected())
    row = fleet.interval()
    assert (row["outcome"], row["refused"]) == ("held", [GONE])
    assert any(line.startswith("without z2 ") and f"; {GONE}: " in line and what in line for line in fleet.log)


def test_a_member_that_dies_while_the_others_join_is_absent_and_the_interval_is_made(fleet):
    def dies(fleet):
        if fleet.centre.phase == "joining" and GONE in fleet.hub.endpoints:
            fleet.goes(GONE)

    row = fleet.interval(dies)
    assert (row["outcome"], row["absent"], row["refused"]) == ("held", [GONE], [])


def test_the_end_of_a_refused_run_is_not_waited_for(fleet):
    """It took ten seconds, and the member dropped the farewell of a run that it does not know."""
    fleet.owner(GONE, allow=UNWILLING)
    began = fleet.hub.now
    fleet.interval()
    assert fleet.hub.now - began < 5
    assert not fleet.member(GONE).dropped["a foreign run"]


def test_a_quorum_begins_at_once_without_members_that_the_broker_knows_to_be_gone(fleet):
    fleet.goes(GONE)
    began = fleet.hub.now
    assert fleet.interval()["outcome"] == "held"
    assert fleet.hub.now - began < 5
    assert fleet.config.wait_s == 30


def test_a_member_that_nobody_knows_anything_about_is_waited_for(fleet):
    fleet.goes(GONE)
    fleet.hub.until(lambda: not fleet.hub.queue)
    fleet.hub.retained.pop(f"hushgrid/1/continuous/state/{GONE}")
    began = fleet.hub.now
    assert fleet.interval()["outcome"] == "held"
    assert fleet.hub.now - began >= fleet.config.wait_s


def test_without_a_quorum_a_member_that_is_gone_is_waited_for(tmp_path):
    fleet = WeakFleet(tmp_path, zones(3))
    fleet.interval()
    fleet.goes(GONE)
    began = fleet.hub.now
    assert fleet.interval()["cause"] == "absent"
    assert fleet.hub.now - began >= fleet.config.wait_s


def test_an_interval_that_ended_before_it_began_is_seen_right_by_running_time(fleet):
    def jumps(fleet):
        wall = fleet.clocks.wall() - 1000.0
        fleet.intervals.clocks = fleet.intervals.clocks._replace(wall=lambda: wall)

    row = fleet.interval(jumps)
    assert row["ended"] < row["began"]
    assert row["ended_s"] > row["began_s"] > 0


def test_sensors_go_on_as_a_smaller_fleet_without_who_refuses(tmp_path):
    raw = masked(tmp_path / "rows", privacy={"epsilon": 1e9, "masked": {"corrupt": 1, "contributors": 3}})
    fleet = RowFleet(tmp_path / "fleet", raw, quorum=3)
    assert fleet.interval()["outcome"] == "answer"
    fleet.hub.endpoints["n3"].allow = UNWILLING
    row = fleet.interval()
    assert (row["outcome"], row["absent"], row["refused"], row["held"]) == ("answer", ["n3"], ["n3"], {})
    assert record(fleet, row)["members"] == ["n0", "n1", "n2"]
    fleet.close()


@pytest.mark.parametrize("contributors", [3, 4])
def test_sums_go_on_without_who_refuses_in_a_round_if_enough_are_left(tmp_path, contributors):
    """The round is asked again, and paid again: two rounds, three answers. Else the interval is missed."""
    privacy = {"epsilon": 1e9, "answers": 3, "masked": {"corrupt": 1, "contributors": contributors}}
    raw = masked(tmp_path / "rows", privacy=privacy, algorithm={"rounds": 2})
    fleet = RowFleet(tmp_path / "fleet", raw)
    once = []

    def tightened(made):
        driver = made.centre.driver
        if driver is not None and driver.machine.state.round == 1 and not once:
            once.append(made.hub.endpoints["n3"])
            terms = once[0].budget_check.terms
            once[0].budget_check.tighten(Budget(epsilon=1e-6, delta=1e-5, adjacency=terms.adjacency))

    row = fleet.interval(tightened)
    assert row["refused"] == ["n3"]
    answers = [fleet.ledgers[node].spends.answers() for node in fleet.rows.plan.nodes]
    if contributors == 4:
        assert (row["outcome"], row["cause"]) == ("missed", "refused")
    else:
        assert row["outcome"] == "answer"
        assert fleet.centre.driver.machine.state.summed == ["n0", "n1", "n2"]
        assert answers == [3, 3, 3, 1]
    fleet.close()


def test_an_old_answer_does_not_bring_back_who_has_refused(tmp_path):
    """The broker delivers it once more; its device would refuse again, and the others would pay for each time."""
    privacy = {"epsilon": 1e9, "answers": 9, "masked": {"corrupt": 1, "contributors": 3}}
    raw = masked(tmp_path / "rows", privacy=privacy, algorithm={"rounds": 4})
    fleet = RowFleet(tmp_path / "fleet", raw)
    said, again = [], []

    def disturbed(made):
        centre, n3 = made.centre, made.hub.endpoints["n3"]
        if not said and centre.driver is not None and centre.driver.machine.state.round == 1:
            said.extend(payload for p in n3._again() if (payload := p.payload) and "edge" in p.topic)
            terms = n3.budget_check.terms
            n3.budget_check.tighten(Budget(epsilon=1e-6, delta=1e-5, adjacency=terms.adjacency))
        elif said and "n3" in centre.membership.refusals and centre.phase == "running":
            again.append(said[0])
            made.hub.publish(centre.on_message(centre.topics.edge("n3", COORDINATOR), said[0]))

    assert fleet.interval(disturbed)["outcome"] == "answer"
    assert again
    assert [fleet.ledgers[node].spends.answers() for node in fleet.rows.plan.nodes] == [5, 5, 5, 1]
    fleet.close()


def test_who_refuses_a_run_without_another_one_is_asked_again_when_the_other_is_back(tmp_path):
    """Owners who believe in three honest shares refuse a sum of three of four. They were not asked any more then, and
    no interval was answered again, although all were there and willing.
    """
    raw = masked(tmp_path / "rows", privacy={"epsilon": 100.0, "masked": {"corrupt": 1}})
    fleet = RowFleet(tmp_path / "fleet", raw, quorum=3)
    for node in fleet.rows.plan.nodes:
        fleet.hub.endpoints[node].allow = Allow(masked=AllowMasked(corrupt=1, honest=3, alone=1e9, peers=("0" * 64,)))
    assert fleet.interval()["outcome"] == "answer"
    fleet.goes("n3")
    for _ in range(2 * PATIENCE):
        row = fleet.interval()
        assert (row["outcome"], row["refused"]) == ("missed", ["n0", "n1", "n2"])
        assert "not asked" not in row["reason"]
    fleet.comes("n3")
    assert fleet.interval()["outcome"] == "answer"
    fleet.close()


def test_a_member_that_is_connected_and_says_nothing_is_absent_once_it_is_silent(fleet):
    fleet.member(GONE).on_message = lambda topic, payload: []
    row = fleet.interval()
    assert (row["outcome"], row["absent"], row["refused"]) == ("held", [GONE], [])


@pytest.mark.runs
def test_who_refuses_and_who_dies_in_one_joining_are_both_named(tmp_path):
    fleet = WeakFleet(tmp_path, zones(4), quorum=2, hold="24h")
    fleet.interval()
    fleet.owner("z1", allow=UNWILLING)

    def dies(fleet):
        if fleet.centre.phase == "joining" and GONE in fleet.hub.endpoints:
            fleet.goes(GONE)

    row = fleet.interval(dies)
    assert (row["outcome"], sorted(row["held"])) == ("held", ["z1", GONE])
    assert (row["absent"], row["refused"]) == (["z1", GONE], ["z1"])
    fleet.close()


@pytest.mark.runs
def test_a_window_that_has_room_again_is_asked_although_nobody_restarts(fleet):
    """A run costs 1; the window of three hours has room for one and a half."""
    fleet.owner(GONE, budget(1.5, window="3h"))
    outcomes = []
    for _ in range(26):
        fleet.ledgers[GONE].new_data()
        row = fleet.interval()
        outcomes.append(row["outcome"])
        assert (row["refused"] == [GONE]) == (row["outcome"] == "held")
    assert outcomes[:11] == ["held"] * 11
    assert outcomes.count("answer") == 2
    assert plans_refused(fleet) <= 3 * PATIENCE


def test_a_refusal_of_a_run_that_is_done_changes_nothing(fleet):
    def late(fleet):
        centre = fleet.centre
        if centre.phase == "finishing" and not centre.error and GONE not in centre.membership.parted:
            lie = wire.encode(Envelope(centre.run, 0, 0, None, Refuse("z2: no more")))
            centre.on_message(centre.topics.edge(GONE, COORDINATOR), lie)

    row = fleet.interval(late)
    assert (row["outcome"], row["refused"], row["absent"]) == ("answer", [], [])
    assert fleet.interval()["outcome"] == "answer"
