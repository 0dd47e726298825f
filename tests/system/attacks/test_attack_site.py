"""A file that hands its data to the adversary: rows from a topic of the fleet's own broker, where whoever runs it
writes and reads them; set-points and the source's health on it; all of it in clear over a network.

The promise: a device does not start with such a file, and says why in one line, unless its owner has taken it upon
himself. Before it was refused the device connected, read the adversary's loads, and answered about them.
"""

import subprocess

import pytest
import yaml

from hushgrid.node.transport.mqtt import MqttLink
from tests.support.daemons.deployed_fleet import HUSHGRID

LOCAL = "mqtt://127.0.0.1:1"  # nobody is there; nobody is looked for


def sections(url):
    """Of the owner's file, and what is said about each."""
    return {
        "source on the fleet's broker": (
            {"source": {"mqtt": {"broker": url, "topic": "meters/all"}}},
            f"source.mqtt.broker: found {url}, the fleet's own",
        ),
        "sink on the fleet's broker": (
            {"sink": {"mqtt": {"broker": url, "topic": "home/z1"}}},
            f"sink.mqtt.broker: found {url}, the fleet's own",
        ),
        "sink on the fleet's topics": (
            {"sink": {"mqtt": {"broker": LOCAL, "topic": "hushgrid/1/demo/edge/z1/coordinator"}}},
            "sink.mqtt.topic: found 'hushgrid/1/demo/edge/z1/coordinator', a fleet's",
        ),
        "in clear": ({"broker": "mqtt://192.0.2.1:1883"}, "broker: found mqtt://192.0.2.1:1883, unencrypted"),
        "a meter in clear": (
            {"source": {"mqtt": {"broker": "mqtt://192.0.2.1", "topic": "meters/all"}}},
            "source.mqtt.broker: found mqtt://192.0.2.1, unencrypted",
        ),
    }


@pytest.mark.parametrize("what", sections(LOCAL))
def test_the_device_does_not_start(what, tmp_path, mosquitto, show):
    changed, said = sections(mosquitto.url)[what]
    node = {"node": "z1", "fleet": "demo", "broker": mosquitto.url, "state": "state"}
    node["data"] = {"case": "case5", "zone": [1, 2, 3]}
    node["budget"] = {"epsilon": 1.0, "adjacency": {"bounded-change": 0.01}}
    (tmp_path / "z1.yaml").write_text(yaml.safe_dump(node | changed))
    spy = MqttLink(mosquitto.url, "spy", subscriptions=["#"], persistent=False)
    spy.connect(10)
    ended = subprocess.run(
        [*HUSHGRID, "node", str(tmp_path / "z1.yaml")], capture_output=True, text=True, timeout=60, check=False
    )
    show(ended.stderr)
    assert ended.returncode == 2
    assert f"z1.yaml: {said}" in ended.stderr
    assert ended.stderr.count("\n") == 1
    spy.publish("hushgrid/end", b"x")
    assert [message.topic for message in spy.poll(10)] == ["hushgrid/end"]
    spy.close()
    assert not (tmp_path / "state").exists()
