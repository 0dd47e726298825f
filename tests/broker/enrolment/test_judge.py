"""What was seen at a broker against the rights: each mistake in the lists is named, whatever the broker says aloud."""

import pytest

from hushgrid.broker.enrolment.lists.access import rights_on
from hushgrid.broker.enrolment.verify.judge import Seen, judge
from hushgrid.broker.enrolment.verify.probe import TAKEN, Outcome
from hushgrid.broker.enrolment.verify.topics import TOGETHER, Holders, beside, foreign_will, retained, tried_by
from hushgrid.node.wire import Topics
from tests.support.transport.mutated_lists import MISTAKES

NEIGHBOURS = {f"n{i}": [f"n{(i - 1) % 4}", f"n{(i + 1) % 4}"] for i in range(4)}
RIGHT = rights_on("ring", NEIGHBOURS, networked=True, exchanging=True)
TRIED = {name: tried_by(RIGHT, name, "0") for name in RIGHT.names}
REFUSED = Outcome("refused", "Not authorized")


def observed(actual, loud):
    """What verify sees at a broker that grants the rights `actual`, and refuses aloud or takes all in silence."""
    seen, no = Seen(), REFUSED if loud else TAKEN

    def publish(outcomes, name, topic):
        may = actual.rights_of(name).may_publish(topic)
        outcomes[name, topic] = TAKEN if may else no
        for reader in actual.names if may else ():
            if reader != name and actual.rights_of(reader).may_subscribe(topic):
                seen.arrived.add((reader, topic, name))
                if retained(topic):
                    seen.late.add((reader, topic, name))

    for name, tried in TRIED.items():
        actually, rights = actual.rights_of(name), RIGHT.rights_of(name)
        for topic in (*tried.topics, *tried.filters, *rights.subscribe):
            seen.subscribed[name, topic] = TAKEN if actually.may_subscribe(topic) else no
        for topic in tried.topics:
            publish(seen.published, name, topic)
        wills = {Topics("ring").state(name)} if rights.publish else set()
        for topic in wills | {foreign_will(rights, tried, Holders(RIGHT, RIGHT.names, "read"))}:
            publish(seen.wills, name, topic)
    return seen


def verdict(actual, loud, kind="mosquitto"):
    return judge(RIGHT, TRIED, RIGHT.names, observed(actual, loud), kind)


@pytest.mark.parametrize("loud", [True, False], ids=["refuses aloud", "is silent"])
def test_at_a_broker_with_the_right_lists_nothing_is_forbidden_and_nothing_lacks(loud):
    seen = verdict(RIGHT, loud)
    assert (seen.code, seen.forbidden, seen.lacking) == (0, [], [])
    assert seen.counts["needed publication", "acknowledged"] == sum(
        RIGHT.rights_of(name).may_publish(topic) for name, tried in TRIED.items() for topic in tried.topics
    )


@pytest.mark.parametrize("loud", [True, False], ids=["refuses aloud", "is silent"])
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_named_and_nobody_else_is_blamed(mistake, loud):
    seen = verdict(mistake.mutate(RIGHT), loud)
    assert seen.code == mistake.code
    lines = seen.forbidden or seen.lacking
    assert any(mistake.line in line for line in lines), lines
    assert all(any(name in line for name in mistake.names) for line in lines), lines


def test_what_a_kind_of_broker_cannot_refuse_is_no_finding_there_and_one_elsewhere():
    seen = observed(RIGHT, True)
    seen.taken_over["n0", "n1"] = Outcome("taken", "the other is disconnected")
    assert judge(RIGHT, TRIED, RIGHT.names, seen, "mosquitto").code == 3
    unbound = judge(RIGHT, TRIED, RIGHT.names, seen, "nats")
    assert (unbound.code, len(unbound.impossible)) == (0, 1)


def test_what_arrives_of_the_brokers_own_topics_is_a_finding():
    seen = observed(RIGHT, True)
    seen.inside.add(("n0", "$MQTT/sess/abc"))
    assert judge(RIGHT, TRIED, RIGHT.names, seen, "nats").forbidden == ["n0 may read $MQTT/sess/abc, the broker's own"]


def test_in_a_large_fleet_an_identity_is_looked_at_with_its_neighbours_and_a_few_others():
    large = rights_on(
        "ring", {f"n{i}": [f"n{(i - 1) % 200}", f"n{(i + 1) % 200}"] for i in range(200)}, networked=True,
        exchanging=True,
    )  # fmt: skip
    names = beside(large, "n100")
    assert len(names) == TOGETHER
    assert {"n100", "n99", "n101", "coordinator", "watch"} <= {*names}
