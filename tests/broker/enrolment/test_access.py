"""Who may publish and read what, by the graph; and each kind of broker reads the same rights from its own form."""

import json
import re
from pathlib import Path

import pytest

from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.broker.enrolment.lists import dynsec, emqx, mosquitto, nats, rabbitmq
from hushgrid.broker.enrolment.lists.access import access_of, matches, rights_on
from hushgrid.broker.enrolment.lists.bridges import BridgeSection, check_bridges, lower, upper
from hushgrid.broker.enrolment.lists.choose import FORMS
from hushgrid.broker.enrolment.lists.place import Place
from hushgrid.broker.enrolment.verify.topics import tried_by
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import load_scenario, scenario_from
from tests.support.paths import DEPLOY
from tests.support.runs.masked_runs import masked

PLACE = Place("/broker", 8883)


def access(folder: Path, without=()):
    scenario = load_scenario(folder / "scenario.yaml")
    return access_of(scenario.fleet, scenario, "scenario.yaml", without)


def around(n):
    """A ring of n sensors."""
    return {f"n{i}": [f"n{(i - 1) % n}", f"n{(i + 1) % n}"] for i in range(n)}


def below(fleet, *topics):
    return {f"hushgrid/1/{fleet}/{topic}" for topic in topics}


STAR, RING = access(DEPLOY), access(DEPLOY / "ring")


@pytest.mark.parametrize(("folder", "rights"), [(DEPLOY, STAR), (DEPLOY / "ring", RING)])
def test_the_lists_of_the_examples_are_those_that_the_command_writes(folder, rights):
    assert (folder / "acl").read_text() == mosquitto.access_list(rights)


def test_in_a_star_a_device_speaks_to_the_coordinator_alone():
    z1 = STAR.rights_of("z1")
    assert {*z1.publish} == below("demo", "edge/z1/coordinator", "state/z1", "status/z1")
    assert {*z1.read} == below("demo", "all/coordinator", "edge/coordinator/z1", "state/coordinator")
    assert z1.subscribe == z1.read


def test_in_a_ring_a_sensor_speaks_to_its_two_neighbours_by_name_and_asks_for_all_edges_to_it():
    n0 = RING.rights_of("n0")
    assert {*n0.publish} == below(
        "ring", "all/n0", "edge/n0/coordinator", "edge/n0/n1", "edge/n0/n3", "state/n0", "status/n0"
    )
    assert {*n0.read} == below(
        "ring", "all/coordinator", "all/n1", "all/n3", "edge/coordinator/n0", "edge/n1/n0", "edge/n3/n0",
        "state/coordinator",
    )  # fmt: skip
    assert {*n0.subscribe} == below("ring", "all/coordinator", "all/n1", "all/n3", "edge/+/n0", "state/coordinator")


def test_the_coordinator_writes_what_watch_reads_and_watch_writes_nothing():
    watch, coordinator = STAR.rights_of("watch"), STAR.rights_of("coordinator")
    shown = below("demo", "run/coordinator", "answer/coordinator", "state/coordinator", "status/coordinator")
    assert shown <= {*coordinator.publish}
    assert all(watch.may_read(topic) for topic in shown)
    assert watch.publish == ()


def test_devices_of_a_masked_sum_speak_to_the_coordinator_alone(tmp_path):
    scenario = scenario_from(masked(tmp_path), "masked", tmp_path)
    rights = access_of("masked", scenario, "masked")
    assert rights.devices == ["n0", "n1", "n2", "n3"]
    assert {*rights.rights_of("n1").publish} == below("masked", "edge/n1/coordinator", "state/n1", "status/n1")
    assert {*rights.rights_of("n1").subscribe} == below("masked", "all/coordinator", "edge/+/n1", "state/coordinator")


def test_of_two_levels_the_sites_have_a_fleet_and_each_sites_devices_another(tmp_path):
    """A device has no right above, and a site none below."""
    scenario = scenario_from(masked(tmp_path, nodes=5, privacy={"masked": {"corrupt": 0, "sites": {"number": 2}}}), "s")
    above = access_of("taps", scenario, "s")
    assert above.devices == ["s1", "s2"]
    assert {*above.rights_of("s1").publish} == below("taps", "edge/s1/coordinator", "state/s1", "status/s1")
    assert access_of("taps-s1", scenario, "s", site="s1").devices == ["n0", "n1"]
    site = access_of("taps-s2", scenario, "s", site="s2")
    assert site.names == ["coordinator", "n2", "n3", "n4", "watch"]
    with pytest.raises(InputError, match="s: found no site s3, expected one of s1, s2"):
        access_of("taps-s3", scenario, "s", site="s3")
    with pytest.raises(InputError, match="found no site s1, expected one of none: it has no sites"):
        access_of("taps-s1", scenario_from(masked(tmp_path), "masked"), "masked", site="s1")


def test_a_name_that_was_put_out_is_in_nobodys_list():
    rights = access(DEPLOY / "ring", without=["n1"])
    assert rights.names == ["coordinator", "n0", "n2", "n3", "watch"]
    for files in FORMS.values():
        text = "".join(files(rights, PLACE).values())
        assert not re.search(r"\bn1\b", text)


# --- the same rights, as each broker reads them ---


def by_mosquitto(rights):
    sections = re.split("(?m)^user ", mosquitto.access_list(rights))[1:]
    lists = {section.split("\n")[0]: re.findall("(?m)^topic (write|read) (.*)$", section) for section in sections}

    def allows(name, topic, right):
        return any(kind == right and matches(pattern, topic) for kind, pattern in lists.get(name, ()))

    return allows


def by_dynsec(rights):
    document = json.loads(dynsec.security(rights))
    assert not any(document["defaultACLAccess"][right] for right in ("publishClientSend", "publishClientReceive"))
    assert document["defaultACLAccess"]["subscribe"] is False
    roles = {role["rolename"]: role["acls"] for role in document["roles"]}
    kinds = {"write": "publishClientSend", "read": "publishClientReceive"}

    def allows(name, topic, right):
        return any(r["allow"] and r["acltype"] == kinds[right] and matches(r["topic"], topic) for r in roles[name])

    return allows


def by_nats(rights):
    users = dict(re.findall(r"user: \"CN=([^\"]+)\".*?\n(.*?)\n      \}", nats.configuration(rights, PLACE), re.S))

    def allows(name, topic, right):
        line = re.search(("publish" if right == "write" else "subscribe") + r": \{(.*)\}", users[name])[1]
        allowed = re.search(r"allow: (\[.*?\])", line)
        denied = json.loads(re.search(r"deny: (\[.*?\])", line)[1])
        if denied == [">"] or allowed is None:
            return False
        return any(matches(one.replace(".", "/").replace("*", "+"), topic) for one in json.loads(allowed[1]))

    return allows


def by_rabbitmq(rights):
    document = json.loads(rabbitmq.definitions(rights))
    lists = {one["user"]: one for one in document["topic_permissions"]}
    assert all(one["password_hash"] == "" and one["tags"] == "" for one in document["users"])
    return lambda name, topic, right: re.search(lists[name][right], topic.replace("/", ".")) is not None


def by_emqx(rights):
    text = emqx.rules(rights)
    assert text.endswith("{deny, all}.\n")
    lists = re.findall(r'\{allow, \{username, "(.*?)"\}, (\w+), \[(.*)\]\}\.', text)

    def allows(name, topic, right):
        action = "publish" if right == "write" else "subscribe"
        topics = [re.findall(r'(?<!eq, )"([^"]+)"', rest) for who, what, rest in lists if (who, what) == (name, action)]
        return any(matches(pattern, topic) for some in topics for pattern in some)

    return allows


@pytest.mark.parametrize("rights", [STAR, RING], ids=["star", "ring"])
@pytest.mark.parametrize("reading", [by_mosquitto, by_dynsec, by_nats, by_rabbitmq, by_emqx])
def test_every_form_allows_the_rights_and_no_topic_more(reading, rights):
    allows = reading(rights)
    for one in rights.rights:
        for topic in tried_by(rights, one.name, "0").topics:
            assert allows(one.name, topic, "write") == one.may_publish(topic), (one.name, topic)
            # Who asks for all edges to it by one filter is allowed that filter: its writers are who decides there.
            assert one.may_read(topic) <= allows(one.name, topic, "read") <= one.may_subscribe(topic), (one.name, topic)


def test_nats_allows_its_own_topics_for_deliveries_alone_and_denies_the_others():
    text = nats.configuration(RING, PLACE)
    for allowed in re.findall(r"allow: (\[.*?\])", text):
        assert [one for one in json.loads(allowed) if one.startswith("$") or ">" in one] in ([], ["$MQTT.sub.>"])
    assert text.count("$MQTT.sess.>") == text.count("$MQTT.msgs.>") == len(RING.names)
    assert 'CN=watch", allowed_connection_types: [MQTT], permissions: {\n        publish: { deny: [">"] }' in text


def test_the_lists_of_a_ring_of_200_are_small():
    rights = rights_on("ring", around(200), networked=True, exchanging=True)
    sizes = {kind: sum(map(len, files(rights, PLACE).values())) // 1000 for kind, files in FORMS.items()}
    largest = {"mosquitto": 150, "dynsec": 900, "nats": 200, "rabbitmq": 300, "emqx": 160}
    assert all(sizes[kind] <= largest[kind] for kind in FORMS), sizes


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("mosquitto", {"mosquitto.conf", "hushgrid.acl"}),
        ("dynsec", {"mosquitto.conf", "dynamic-security.json"}),
        ("nats", {"nats.conf"}),
        ("rabbitmq", {"rabbitmq.conf", "definitions.json", "enabled_plugins"}),
        ("emqx", {"acl.conf", "emqx.conf"}),
    ],
)
def test_the_folder_of_the_broker_has_all_that_its_kind_reads(kind, files, tmp_path):
    file = FleetFile(fleet="demo", broker="mqtts://broker.example:8884", kind=kind)
    made = FleetDirectory.make(tmp_path / "F", file, DEPLOY / "scenario.yaml")
    made.write_broker()
    folder = made.path / "broker"
    assert {path.name for path in folder.iterdir()} == files | {"certs", "crl.pem"}
    assert any("8884" in (folder / name).read_text() for name in files)


CLUSTER = "mqtts://b1.example,mqtts://b2.example,mqtts://b3.example"


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("nats", {"nats.conf", "nats-1.conf", "nats-2.conf", "nats-3.conf"}),
        (
            "rabbitmq",
            {"definitions.json", "enabled_plugins"}
            | {f"rabbitmq-{n}.conf" for n in (1, 2, 3)}
            | {f"rabbitmq-env-{n}.conf" for n in (1, 2, 3)},
        ),
    ],
)
def test_several_urls_are_a_cluster_each_of_whose_servers_knows_the_others(kind, files, tmp_path):
    made = FleetDirectory.make(
        tmp_path / "F", FleetFile(fleet="demo", broker=CLUSTER, kind=kind), DEPLOY / "scenario.yaml"
    )
    made.write_broker()
    folder = made.path / "broker"
    assert {path.name for path in folder.iterdir()} == files | {"certs", "crl.pem"}
    for number in (1, 2, 3):
        text = (folder / f"{kind}-{number}.conf").read_text()
        assert all(f"b{other}.example" in text for other in (1, 2, 3))


@pytest.mark.parametrize(
    ("kind", "broker", "why"),
    [
        ("mosquitto", CLUSTER, "found 3 servers of kind mosquitto, expected one, or --broker-kind nats or rabbitmq"),
        ("nats", "mqtts://a,mqtts://b", "found 2 servers, expected 3 or 5: when one dies a majority is left"),
    ],
)
def test_what_makes_no_cluster_is_refused(kind, broker, why, tmp_path):
    with pytest.raises(InputError, match=f"^--broker: {why}$"):
        FleetDirectory.make(tmp_path / "F", FleetFile(fleet="demo", broker=broker, kind=kind), DEPLOY / "scenario.yaml")


def test_the_command_prints_a_list_or_writes_what_another_kind_of_broker_reads(tmp_path, hushgrid):
    made = FleetDirectory.make(
        tmp_path / "F", FleetFile(fleet="demo", broker="mqtts://b:8883"), DEPLOY / "scenario.yaml"
    )
    printed = hushgrid("fleet", "acl", made.path)
    assert (printed.code, printed.out) == (0, mosquitto.access_list(STAR))
    assert hushgrid("fleet", "acl", made.path, "--for", "emqx").out == emqx.rules(STAR)
    written = hushgrid("fleet", "acl", made.path, "--for", "nats", "--write")
    assert written.out == f"{made.path}/broker/nats.conf\n"
    assert FleetDirectory(made.path).kind == "nats"


# --- sites with a bridged broker ---


def bridges(**members):
    return {name: BridgeSection(broker="mqtts://b.example", members=names) for name, names in members.items()}


def test_a_bridge_has_what_crosses_between_its_devices_and_all_others_and_nothing_else():
    north = upper(RING, bridges(north=["n0", "n1"], south=["n2", "n3"])).rights_of("north")
    assert {*north.publish} == below(
        "ring", "all/n0", "all/n1", "edge/n0/coordinator", "edge/n1/coordinator", "edge/n0/n3", "edge/n1/n2",
        "state/n0", "state/n1", "status/n0", "status/n1",
    )  # fmt: skip
    assert {*north.read} == below(
        "ring", "all/coordinator", "all/n2", "all/n3", "edge/coordinator/n0", "edge/coordinator/n1", "edge/n3/n0",
        "edge/n2/n1", "state/coordinator",
    )  # fmt: skip
    assert not any(north.may_publish(topic) for name in ("n2", "n3") for topic in RING.rights_of(name).publish)


def test_a_sites_devices_have_no_rights_at_the_fleets_broker_and_the_others_keep_theirs():
    above = upper(RING, bridges(north=["n0", "n1"]))
    assert {*above.names} == {"coordinator", "watch", "n2", "n3", "north"}
    assert above.rights_of("n2") == RING.rights_of("n2")
    assert lower(RING, ["n0", "n1"]).names == ["n0", "n1"]


@pytest.mark.parametrize(
    ("sites", "why"),
    [
        ({"n0": ["n1"]}, "the name n0"),
        ({"watch": ["n1"]}, "the name watch"),
        ({"north": ["n9"]}, "found n9"),
        ({"north": []}, "found no devices"),
        ({"north": ["n0"], "south": ["n0"]}, "found n0 in north and in south"),
    ],
)
def test_a_bridge_with_anothers_name_or_devices_is_refused(sites, why):
    with pytest.raises(InputError, match=why):
        check_bridges(bridges(**sites), ["n0", "n1", "n2", "n3"], ["watch", "coordinator"])
