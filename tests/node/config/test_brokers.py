"""Brokers and topics that a file may name: judged by what the file says, without a network."""

import pytest
import yaml

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.brokers import in_clear
from hushgrid.node.config.coordinator import load_coordinator, load_site
from hushgrid.node.config.device import load_device

DEVICE = {
    "node": "z1",
    "fleet": "demo",
    "broker": "mqtt://127.0.0.1:1883",
    "state": "state",
    "data": {"case": "case14", "zone": [1, 2, 3], "loads": "loads.csv"},
    "budget": {"epsilon": 5.0, "adjacency": {"bounded-change": 0.01}},
}
ROWS = DEVICE | {
    "node": "n0",
    "data": "n0.npz",
    "labels": {"classes": 2},
    "budget": {"epsilon": 5.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
}
CENTRE = {"fleet": "demo", "broker": "mqtt://127.0.0.1:1883", "scenario": "s.yaml", "state": "st"}
FAR, FAR_TLS = "mqtt://broker.example:1883", "mqtts://broker.example:8883"


def read(tmp_path, raw, load=load_device):
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(raw))
    return load(path)


def heard(broker="mqtt://127.0.0.1:1884", topic="meters/all"):
    return {"source": {"mqtt": {"broker": broker, "topic": topic}}}


def informed(broker="mqtt://127.0.0.1:1884", topic="home/z1"):
    return {"sink": {"mqtt": {"broker": broker, "topic": topic}}}


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://localhost",
        "mqtt://127.8.0.1",
        "mqtt://[::1]:99",
        "mqtt://[::ffff:127.0.0.1]",
        "mqtt://LOCALHOST",
        FAR_TLS,
    ],
)
def test_loopback_and_encryption_are_not_in_clear(url, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", None)  # and no name is looked up
    assert not in_clear(url)


@pytest.mark.parametrize(
    "url", [FAR, "mqtt://10.0.0.7", "mqtt://0.0.0.0", "mqtt://[::]", "mqtt://localhost.example", "mqtt://128.0.0.1"]
)
def test_an_unencrypted_broker_on_another_machine_is_refused_unless_it_is_owned(url, tmp_path):
    for load, raw in ((load_device, DEVICE), (load_device, ROWS), (load_coordinator, CENTRE)):
        with pytest.raises(
            InputError, match=r"file.yaml: broker: found mqtt://\S+, unencrypted and .* broker_in_clear: true"
        ):
            read(tmp_path, raw | {"broker": url}, load)
        assert read(tmp_path, raw | {"broker": url, "broker_in_clear": True}, load).broker == url


@pytest.mark.parametrize(("section", "key"), [(heard(FAR), "source.mqtt"), (informed(FAR), "sink.mqtt")])
def test_so_is_a_site_broker_in_clear_on_another_machine(section, key, tmp_path):
    with pytest.raises(InputError, match=f"file.yaml: {key}.broker: found {FAR}, unencrypted"):
        read(tmp_path, DEVICE | section)
    read(tmp_path, DEVICE | section | {"broker_in_clear": True})


@pytest.mark.parametrize(
    ("fleet", "site"),
    [
        ("mqtt://127.0.0.1:1883", "mqtt://localhost"),
        ("mqtt://localhost", "mqtt://[::1]:1883"),
        ("mqtts://127.0.0.1:8883", "mqtt://127.0.0.1:8883"),
        (FAR_TLS, FAR_TLS),
        (FAR_TLS, "mqtts://Broker.Example.:8884"),  # one broker has several ports
        (FAR_TLS, FAR),
    ],
)
@pytest.mark.parametrize("raw", [DEVICE, ROWS], ids=["zone", "rows"])
def test_the_fleets_own_broker_is_none_of_the_site(raw, fleet, site, tmp_path):
    whole = raw | {"broker": fleet, "broker_in_clear": True}
    for key, section in (("source", heard(site)), ("sink", informed(site))):
        with pytest.raises(InputError, match=rf"file.yaml: {key}.mqtt.broker: found \S+, the fleet's own, expected"):
            read(tmp_path, whole | section)


def test_two_brokers_may_stand_side_by_side_on_one_machine(tmp_path):
    assert read(tmp_path, DEVICE | heard() | informed()).sink.mqtt.topic == "home/z1"
    assert read(tmp_path, DEVICE | {"broker": FAR_TLS} | heard("mqtt://localhost") | informed("mqtt://localhost"))


@pytest.mark.parametrize("topic", ["hushgrid/1/demo/status/z1", "hushgrid/1/other/all/x", "hushgrid/1"])
def test_a_fleets_topics_are_none_of_the_site_on_whatever_broker(topic, tmp_path):
    for key, section in (("source", heard(topic=topic)), ("sink", informed(topic=topic))):
        with pytest.raises(InputError, match=f"{key}.mqtt.topic: found '{topic}', a fleet's, expected a topic that"):
            read(tmp_path, DEVICE | section)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("site/loads", "site/loads"),
        ("meters/{bus}", "meters/4"),
        ("m/{bus}/{quantity}", "m/4/p_mw"),
        ("m/{bus}/{quantity}", "m/setpoints"),  # its own m/setpoints/available would be a load
    ],
)
def test_set_points_are_not_told_where_raw_loads_are(source, sink, tmp_path):
    with pytest.raises(InputError, match=r"sink.mqtt.topic: found '.*', the source's, expected another one: raw data"):
        read(tmp_path, DEVICE | heard(topic=source) | informed(topic=sink))


# --- a cluster: a list of servers ---

CLUSTER = ["mqtts://b1.example", "mqtts://b2.example:8884", "mqtts://b3.example"]


@pytest.mark.parametrize(("load", "raw"), [(load_device, DEVICE), (load_coordinator, CENTRE)])
def test_a_list_of_servers_is_one_broker(load, raw, tmp_path):
    assert read(tmp_path, raw | {"broker": CLUSTER}, load).broker == ",".join(CLUSTER)


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([FAR_TLS, FAR], r"broker: found \S+, expected mqtt:// or mqtts:// for all servers"),
        (["mqtt://127.0.0.1", FAR], f"broker: found {FAR}, unencrypted and not on this machine"),
        ([FAR_TLS, FAR_TLS], f"broker: found {FAR_TLS} twice, expected each server once"),
        ([FAR_TLS, "broker.example"], "broker: found 'broker.example', expected mqtt://host:port"),
        ([], r"broker: found \[\], expected str"),
        ([FAR_TLS, 7], r"broker: found \[.*, 7\], expected str"),
    ],
)
@pytest.mark.parametrize(("load", "raw"), [(load_device, DEVICE), (load_coordinator, CENTRE)])
def test_what_holds_for_one_url_holds_for_each_of_a_list(load, raw, servers, why, tmp_path):
    with pytest.raises(InputError, match=f"^{tmp_path}/file.yaml: {why}"):
        read(tmp_path, raw | {"broker": servers}, load)


def test_no_server_of_the_fleet_is_the_sites_broker(tmp_path):
    whole = DEVICE | {"broker": CLUSTER}
    for key, section in (("source", heard(CLUSTER[2])), ("sink", informed("mqtts://b2.example"))):
        with pytest.raises(InputError, match=rf"{key}.mqtt.broker: found \S+, the fleet's own, expected"):
            read(tmp_path, whole | section)


def test_a_site_has_another_broker_than_the_fleet_above_whose_broker_would_see_its_sums(tmp_path):
    tls = {"ca": "ca.crt", "cert": "s1.crt", "key": "s1.key"}
    above = {"site": "s1", "fleet": "demo", "broker": [FAR_TLS, "mqtts://b2.example"], "tls": tls, "peers": ["0" * 64]}
    site = {"fleet": "demo-s1", "broker": "mqtt://127.0.0.1:1883", "state": "st", "above": above}
    assert read(tmp_path, site, load_site).above.broker == f"{FAR_TLS},mqtts://b2.example"
    for own in (FAR_TLS, "mqtts://B2.example.:8884", ["mqtts://b3.example", FAR_TLS]):
        with pytest.raises(InputError, match=r"above\.broker: found \S+, the site's own, expected another"):
            read(tmp_path, site | {"broker": own, "tls": tls}, load_site)
