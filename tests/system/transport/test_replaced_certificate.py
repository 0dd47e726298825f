"""A certificate that is replaced under a running device is the one that its next attempt to connect has."""

import shutil
import time
from types import SimpleNamespace

import pytest

from hushgrid.node.transport.mqtt import MqttLink

PATIENCE_S = 30.0


@pytest.mark.mosquitto
def test_a_device_whose_certificate_is_not_accepted_connects_once_it_is_replaced(
    start_mosquitto, certificates, tmp_path
):
    (tmp_path / "acl").write_text("pattern readwrite of/%u\n")
    broker = start_mosquitto(tls=certificates("broker"), acl=tmp_path / "acl")
    good, foreign = certificates("n1"), certificates("stranger")
    own = SimpleNamespace(ca=good.ca, cert=str(tmp_path / "crt"), key=str(tmp_path / "key"))
    for part in ("cert", "key"):
        shutil.copy(getattr(foreign, part), getattr(own, part))
    link = MqttLink(broker.url, "n1", tls=own)
    try:
        link.open()
        while not link.waiting:
            link.poll(0.1)
        shutil.copy(good.cert, own.cert)  # without its key it does not belong together, and is not taken
        for _ in range(10):
            link.poll(0.1)
        assert not link.connected
        shutil.copy(good.key, own.key)
        ends = time.monotonic() + PATIENCE_S
        while not link.connected and time.monotonic() < ends:
            link.poll(0.1)
        assert link.connected
    finally:
        link.close()
