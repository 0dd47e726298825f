"""The access lists that `hushgrid fleet` writes, on the brokers themselves: what must not arrive does not, what is
needed does, and `verify` names each mistake.
"""

import socket
import ssl
from contextlib import ExitStack

import pytest

from hushgrid.broker.enrolment.lists.access import access_of
from hushgrid.broker.enrolment.lists.choose import LISTS, broker_files
from hushgrid.broker.enrolment.verify.probe import Probe, Try
from hushgrid.broker.enrolment.verify.run import entries, verify
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.transport.connect import parse_urls
from hushgrid.node.wire import Birth, Capabilities, Mark, Topics, encode
from tests.support.paths import DEPLOY
from tests.support.transport.fleet_brokers import KINDS, started
from tests.support.transport.mutated_lists import FORGOTTEN, MISTAKES

SAID = {  # how each kind refuses: a publication, a subscription, another's client id
    "mosquitto": ("Not authorized", "granted, nothing arrives", "taken by name, the other stays"),
    "dynsec": ("Not authorized", "Not authorized", "taken by name, the other stays"),
    "nats": ("acknowledged, not delivered", "Unspecified error", "the other is disconnected"),
    "rabbitmq": ("connection ended", "connection ended", "the other is disconnected"),
}


@pytest.fixture(scope="module", params=KINDS)
def ring(request, tmp_path_factory):
    """The ring of four, and a broker of each kind on its files."""
    with ExitStack() as stack:
        yield started(tmp_path_factory.mktemp(request.param) / "F", request.param, "ring", stack)


def tried(directory, only=(), rights=None):
    return verify(rights or directory.access(), directory.authority(), directory.broker, directory.kind, only)


def under(directory, broker, rights, edit=lambda text: text):
    """Puts lists of these rights into the broker's place."""
    folder, kind = broker.folder, directory.kind
    files = broker_files(kind, rights, folder, parse_urls(directory.broker))
    text = edit(files[LISTS[kind]])
    (folder / LISTS[kind]).write_text(text)
    broker.restart()


def test_under_the_lists_of_a_ring_nothing_forbidden_arrives_and_nothing_needed_lacks(ring):
    verdict = tried(ring[0])
    assert (verdict.code, verdict.forbidden, verdict.lacking) == (0, [], [])
    publication, subscription, client_id = SAID[ring[0].kind]
    assert {reason for what, reason in verdict.counts if what == "forbidden publication"} == {publication}
    assert {reason for what, reason in verdict.counts if what == "forbidden subscription"} == {subscription}
    assert client_id in {reason for what, reason in verdict.counts if what == "another's client id"}
    assert verdict.counts["needed publication", "acknowledged"] == 34


def test_under_the_lists_of_a_star_nothing_forbidden_arrives_and_nothing_needed_lacks(ring):
    directory, broker = ring
    scenario = load_scenario(DEPLOY / "scenario.yaml")
    star = access_of("ring", scenario, "scenario.yaml")
    under(directory, broker, star)
    verdict = tried(directory, rights=star)
    assert (verdict.code, verdict.forbidden, verdict.lacking) == (0, [], [])
    assert verdict.counts["needed publication", "acknowledged"] == 18


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_in_the_lists_is_named(ring, mistake):
    directory, broker = ring
    if directory.kind == "rabbitmq":
        pytest.skip("all nine at once, below: each attempt that it refuses costs a connection")
    under(directory, broker, mistake.mutate(directory.access()))
    verdict = tried(directory, mistake.names)
    assert verdict.code == mistake.code, (verdict.forbidden, verdict.lacking)
    lines = verdict.forbidden + verdict.lacking
    assert any(mistake.line in line for line in lines), lines
    assert all(any(name in line for name in mistake.names) for line in lines), lines


def test_nine_mistakes_at_once_are_nine_findings(ring):
    directory, broker = ring
    rights = directory.access()
    for mistake in MISTAKES.values():
        rights = mistake.mutate(rights)
    under(directory, broker, rights)
    verdict = tried(directory)
    lines = verdict.forbidden + verdict.lacking
    assert [name for name, m in MISTAKES.items() if not any(m.line in line for line in lines)] == [], lines


def test_what_the_file_forgets_to_deny_is_named(ring):
    directory, broker = ring
    old, new, line = FORGOTTEN[directory.kind]
    under(directory, broker, directory.access(), lambda text: text.replace(old, new))
    verdict = tried(directory, ["watch", "n0"])
    assert verdict.code == 3
    assert any(found.startswith(line) for found in verdict.forbidden), verdict.forbidden


def test_where_all_of_what_nats_keeps_for_mqtt_is_allowed_that_is_named(ring):
    directory, broker = ring
    if directory.kind != "nats":
        pytest.skip("NATS alone has these topics")

    def wide(text):
        return (
            text.replace('"$MQTT.sub.>"]', '"$MQTT.>"]').replace('"$MQTT.msgs.>", ', "").replace('"$MQTT.sess.>", ', "")
        )

    under(directory, broker, directory.access(), wide)
    verdict = tried(directory, ["n0"])
    assert verdict.code == 3
    assert any(found.startswith("n0 may subscribe to $MQTT/msgs/#") for found in verdict.forbidden), verdict.forbidden


def test_the_command_refuses_to_disconnect_who_is_there_unless_it_is_told_to(ring, hushgrid):
    directory, broker = ring
    if directory.kind != "mosquitto":
        pytest.skip("the same on every broker")
    under(directory, broker, directory.access())
    with entries(["n0"], directory.authority(), parse_urls(directory.broker)[0], True) as made:
        device = Probe(made["n0"])
        assert device.open()
        capabilities = Capabilities("0", ("recal",), ("laplace",), "rows", "", 8)
        birth = encode(Birth(1, b"", Mark(b"ledger", 0), capabilities))
        device.publish([Try(Topics("ring").state("n0"), birth, True)])
        refused = hushgrid("fleet", "verify", directory.path)
        assert (refused.code, refused.out) == (4, "")
        assert "found n0 connected, expected nobody" in refused.err
        assert not device.ended
        done = hushgrid("fleet", "verify", directory.path, "--interrupt", "--only", "n0", "watch")
        assert done.code == 0, done.out
        assert done.out.splitlines()[-1] == "0 forbidden arrived, 0 needed lacking"
        assert device.ended
        device.close()
    unknown = hushgrid("fleet", "verify", directory.path, "--only", "n9")
    assert (unknown.code, unknown.out) == (2, "")
    assert "--only: found 'n9', expected one of coordinator, n0," in unknown.err


def test_nobody_speaks_the_protocol_of_nats_itself(ring):
    """Its users have no passwords: by its own protocol the certificate of a device opens nothing."""
    directory, broker = ring
    if directory.kind != "nats":
        pytest.skip("NATS alone has this port")
    under(directory, broker, directory.access())
    port = next(
        int(line.rpartition(":")[2]) for line in broker.log.read_text().splitlines() if "for client connections" in line
    )
    with entries(["n0"], directory.authority(), parse_urls(directory.broker)[0], False) as made:
        assert "authorization" in spoken(port, made["n0"].context).lower()


def spoken(port: int, context: ssl.SSLContext) -> str:
    """What NATS answers to a client with this certificate that names itself as a user."""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.recv(4096)  # INFO
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as secure:
            secure.settimeout(5)
            secure.sendall(b'CONNECT {"verbose":true,"user":"CN=n0","pass":""}\r\nPING\r\n')
            return secure.recv(4096).decode()
