"""A member is put out on each kind of broker: its live connection ends, the others stay, and it cannot come back."""

import shlex
import time

import pytest

from hushgrid.broker.enrolment.authority import request
from hushgrid.cli.main import main
from hushgrid.kernels.errors import Stopped
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.transport.fleet_brokers import KINDS, RABBITMQ, started

PATIENCE = 60.0


def connection(directory, name, place, stack, patience=PATIENCE):
    tls = Tls(
        ca=str(directory.path / "ca.crt"), cert=str(directory.path / f"{name}.crt"), key=str(place / f"{name}.key")
    )
    link = MqttLink(directory.broker, name, tls=tls, persistent=False)
    stack.callback(link.close)
    link.connect(patience)
    return link


def apply(kind, broker):
    """What the operator would type."""
    if kind == "rabbitmq":
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in broker.environment.items())
        return f"env {variables} {RABBITMQ}/rabbitmqctl delete_user z3"
    return f"kill -HUP {broker.child.pid}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_connection_ends_and_the_others_stay(kind, tmp_path, stack, capsys):
    directory, broker = started(tmp_path / "F", kind, "demo", stack)
    authority = directory.authority()
    for name in ("z1", "z3"):
        directory.enrol(name, request(name, tmp_path / "box"), authority)
    other, box = (connection(directory, name, tmp_path / "box", stack) for name in ("z1", "z3"))
    certificate = (directory.path / "z3.crt").read_bytes()
    began = time.monotonic()
    code = main(["fleet", "revoke", str(directory.path), "z3", "--apply", apply(kind, broker)])
    said = capsys.readouterr()
    assert code == 0, said.err
    while box.connected:
        assert time.monotonic() < began + PATIENCE
        box.poll(0.01)
    with capsys.disabled():
        print(f"{kind}: {time.monotonic() - began:.3f} s from the command to the cut")
    other.poll(0.3)
    assert other.connected
    assert other.disconnects == 0
    assert (directory.path / "z3.crt").read_bytes() == certificate
    with pytest.raises(Stopped):
        connection(directory, "z3", tmp_path / "box", stack, patience=4.0)
