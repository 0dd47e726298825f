"""What a guard lets pass: two ends that meet, start again, renew or lose their certificates."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node import frames, wire
from hushgrid.node.config.trust import credentials_of
from hushgrid.node.frames import Hello, Sealed, Signed
from hushgrid.node.schema.trust import Trusted
from hushgrid.node.trust.guard import LEDGERS, Guard
from hushgrid.node.wire import COORDINATOR, Death, Instance, Publication, Topics
from tests.support.devices.certificates import NOON, Authority, written

TOPICS = Topics("f")
EDGE, BACK, STATE = TOPICS.edge(COORDINATOR, "n0"), TOPICS.edge("n0", COORDINATOR), TOPICS.state("n0")
NAMES = (COORDINATOR, "n0")


class Ends:
    """A coordinator and a device with files of their own, and a wire between them."""

    def __init__(self, place):
        self.place, self.authority = place, Authority()
        self.refusals, self.heard = {name: [] for name in NAMES}, {name: [] for name in NAMES}
        self.sessions = dict.fromkeys(NAMES, 0)
        (place / "ca.crt").write_bytes(self.authority.certificate.public_bytes(Encoding.PEM))
        self.revokes()
        self.certificates = {name: self.certified(name) for name in NAMES}
        self.guards = {}
        for name in NAMES:
            self.starts(name)

    def certified(self, name):
        certificate, key = self.authority.signs(name)
        written(self.place / name, certificate, key)
        return certificate.public_bytes(Encoding.DER)

    def revokes(self, *certificates):
        new = self.place / "crl.new"
        new.write_bytes(self.authority.revokes(*certificates).public_bytes(Encoding.PEM))
        new.rename(self.place / "crl.pem")

    def starts(self, name, ledger=None):
        """Its process, again; with another `ledger` if it is given."""
        cert, key = (str(self.place / name / f"own.{end}") for end in ("crt", "key"))
        place = {"ca": str(self.place / "ca.crt"), "crl": str(self.place / "crl.pem")}
        credentials = credentials_of(name, Trusted(**place, cert=cert, key=key), None, "file")
        self.sessions[name] += 1
        session, refuse = (ledger or name.encode(), self.sessions[name]), self.refusals[name].append
        self.guards[name] = Guard(name, TOPICS, session, credentials, refuse, lambda: NAMES)

    def send(self, name, *publications):
        """What it sends, and all that follows, as the broker carries it: every frame."""
        return self.carry(self.guards[name].seal(publications))

    def carry(self, out):
        carried = []
        while out:
            topic, payload, _ = publication = out.pop(0)
            carried.append(publication)
            *_, end = topic.split("/")
            receiver = COORDINATOR if topic == STATE else end
            opened, more = self.guards[receiver].open(topic, payload)
            self.heard[receiver] += [message for _, message in opened]
            out += more
        return carried


@pytest.fixture
def ends(tmp_path, monkeypatch):
    monkeypatch.setattr("hushgrid.node.system.wall", NOON.timestamp)
    return Ends(tmp_path)


def of(kind, carried):
    return [p for p in carried if isinstance(frames.decode(p.payload), kind)]


def test_two_ends_meet_in_three_hellos_and_what_waited_arrives(ends):
    carried = ends.send(COORDINATOR, (EDGE, b"first", False))
    assert len(of(Hello, carried)) == 3
    assert ends.heard["n0"] == [b"first"]
    assert len(ends.send("n0", (BACK, b"second", False))) == 1
    assert ends.heard[COORDINATOR] == [b"second"]
    assert ends.refusals == {COORDINATOR: [], "n0": []}


def test_a_birth_counts_once_its_sender_is_known_to_be_there(ends):
    ends.send("n0", (STATE, b"birth", True))
    assert ends.heard[COORDINATOR] == [b"birth"]


@pytest.mark.parametrize("restarted", NAMES)
def test_nothing_of_an_earlier_session_of_either_end_passes(restarted, ends):
    old = [*ends.send(COORDINATOR, (EDGE, b"old", False)), *ends.send("n0", (STATE, b"birth", True))]
    ends.starts(restarted)
    ends.send(COORDINATOR, (EDGE, b"new", False))
    ends.send("n0", (STATE, b"birth again", True))
    before = {name: list(heard) for name, heard in ends.heard.items()}
    stands = of(Signed, old) if restarted == COORDINATOR else []  # the last word of a session that goes on
    ends.carry([p for p in old if p not in stands])
    assert ends.heard == before


def test_a_message_is_taken_once_and_a_birth_by_its_last_word(ends):
    carried = ends.send(COORDINATOR, (EDGE, b"w", False))
    births = [of(Signed, ends.send("n0", (STATE, word, True)))[0] for word in (b"one", b"two")]
    ends.carry([of(Sealed, carried)[0], births[0]])
    assert ends.heard == {"n0": [b"w"], COORDINATOR: [b"one", b"two"]}
    assert [line.split(":")[0] for line in (*ends.refusals["n0"], *ends.refusals[COORDINATOR])] == ["repeated"] * 2
    ends.carry([births[1]])  # as a broker does that keeps it, at each connection
    assert ends.heard[COORDINATOR] == [b"one", b"two", b"two"]


def test_a_coordinator_that_starts_again_takes_no_birth_but_the_last_one_of_a_session(ends):
    births = [of(Signed, ends.send("n0", (STATE, word, True)))[0] for word in (b"one", b"two")]
    ends.starts(COORDINATOR)
    ends.heard[COORDINATOR].clear()
    ends.carry([births[0]])
    assert ends.heard[COORDINATOR] == []
    ends.carry([births[1]])
    assert ends.heard[COORDINATOR] == [b"two"]


def test_a_renewed_certificate_counts_without_a_new_session(ends):
    ends.send("n0", (STATE, b"one", True))
    ends.certified("n0")
    ends.carry(ends.guards["n0"].connected())
    ends.send("n0", (STATE, b"two", True))
    assert ends.heard[COORDINATOR] == [b"one", b"two"]


def test_a_birth_by_a_renewed_certificate_that_comes_before_its_hello_waits_for_it(ends):
    ends.send("n0", (STATE, b"one", True))
    ends.certified("n0")
    ends.guards["n0"].connected()  # its hello is lost
    ends.send("n0", (STATE, b"two", True))
    assert ends.heard[COORDINATOR] == [b"one", b"two"]


def test_a_renewed_certificate_counts_at_the_next_session_of_a_peer_although_the_connection_stands(ends):
    ends.send("n0", (STATE, b"one", True))
    revoked = ends.certificates["n0"]
    ends.certified("n0")
    ends.revokes(revoked)
    ends.starts(COORDINATOR)
    ends.send("n0", (STATE, b"two", True))
    assert ends.heard[COORDINATOR] == [b"one", b"two"]


def test_a_peer_whose_certificate_is_revoked_is_none_from_the_next_hello_on(ends):
    ends.send(COORDINATOR, (EDGE, b"first", False))
    ends.revokes(ends.certificates["n0"])
    ends.guards[COORDINATOR].connected()
    ends.send("n0", (BACK, b"late", False))
    assert ends.heard[COORDINATOR] == []
    assert "revoked" in " ".join(ends.refusals[COORDINATOR])


def test_a_peer_whose_certificate_is_revoked_begins_nothing_although_nobody_says_hello(ends):
    ends.send("n0", (STATE, b"one", True))
    ends.revokes(ends.certificates["n0"])
    ends.send("n0", (STATE, b"two", True))
    assert ends.heard[COORDINATOR] == [b"one"]
    assert "revoked" in " ".join(ends.refusals[COORDINATOR])


def test_a_peer_whose_old_certificate_is_revoked_counts_by_its_new_one_and_what_it_said_before_does_not(ends):
    said = of(Sealed, [*ends.send("n0", (BACK, b"one", False)), *ends.send("n0", (BACK, b"two", False))])
    revoked = ends.certificates["n0"]
    ends.certified("n0")
    ends.revokes(revoked)
    ends.guards[COORDINATOR].connected()
    ends.carry(ends.guards["n0"].connected())
    ends.carry(said)
    ends.send("n0", (BACK, b"three", False))
    assert ends.heard[COORDINATOR] == [b"one", b"two", b"three"]


def test_an_earlier_session_does_not_come_back_by_a_certificate_that_counts_still(ends):
    ends.send("n0", (BACK, b"one", False))
    revoked = ends.certificates["n0"]
    ends.certified("n0")
    late = ends.guards["n0"].connected()  # the hello of its first session by its new certificate
    ends.revokes(revoked)
    ends.guards[COORDINATOR].connected()
    ends.starts("n0")
    ends.send("n0", (BACK, b"two", False))
    ends.carry(late)
    assert ends.heard[COORDINATOR] == [b"one", b"two"]
    assert ends.guards[COORDINATOR].peers["n0"].hello.key == ends.guards["n0"].key.public


def test_a_name_has_no_more_than_so_many_ledgers(ends):
    for number in range(LEDGERS + 3):
        ends.starts("n0", b"ledger %d" % number)
        ends.send("n0", (BACK, b"%d" % number, False))
    assert ends.heard[COORDINATOR] == [b"%d" % number for number in range(LEDGERS)]


def test_a_list_that_cannot_be_read_lets_nobody_new_in_and_ends_nothing(ends):
    ends.send(COORDINATOR, (EDGE, b"first", False))
    (ends.place / "crl.pem").write_bytes(b"no list")
    ends.send("n0", (BACK, b"still", False))
    assert ends.heard[COORDINATOR] == [b"still"]
    with pytest.raises(InputError, match=r"file: trust.crl: .*crl.pem: found no list of revoked certificates"):
        ends.starts("n0")


def test_a_last_will_passes_and_nothing_else_in_clear(ends):
    death = wire.encode(Death(1))
    ends.carry([Publication(STATE, death), Publication(BACK, death), Publication(BACK, b"junk")])
    assert ends.heard[COORDINATOR] == [death]
    assert [line.split(":")[0] for line in ends.refusals[COORDINATOR]] == ["unsealed"] * 2


def test_a_death_in_its_own_name_tells_an_end_nothing(ends):
    """A coordinator would give way to another one, which the broker has made up."""
    ends.carry([Publication(TOPICS.state(COORDINATOR), wire.encode(Death(9, Instance(b"made up", 1, 1e11))))])
    assert ends.heard[COORDINATOR] == ends.refusals[COORDINATOR] == []


def frame_of(kind, carried):
    (publication, *_) = of(kind, carried)
    return publication.topic, frames.decode(publication.payload)


@pytest.mark.parametrize("lie", [{"session": 1 << 63}, {"session": (1 << 64) - 1}, {"standing": {"elsewhere": 1}}])
def test_a_hello_that_says_what_none_says_is_refused_and_ends_nothing(lie, ends):
    topic, hello = frame_of(Hello, ends.send("n0", (BACK, b"one", False)))
    ends.carry([Publication(topic, frames.encode(replace(hello, **lie)))])
    assert [line.split(":")[0] for line in ends.refusals[COORDINATOR]] == ["unsealed"]
    ends.send("n0", (BACK, b"two", False))
    assert ends.heard[COORDINATOR] == [b"one", b"two"]


def test_no_signed_message_is_kept_for_a_hello_that_is_longer_than_any_of_its_kind(ends):
    topic, signed = frame_of(Signed, ends.send("n0", (STATE, b"one", True)))
    for where, size in ((topic, wire.SMALL + 1), (TOPICS.all("n0"), wire.SMALL + 1)):
        assert ends.guards[COORDINATOR].open(where, frames.encode(replace(signed, message=bytes(size)))) == ([], [])
    assert [line.split(":")[0] for line in ends.refusals[COORDINATOR]] == ["unsealed"] * 2


def test_a_peer_that_says_nothing_is_asked_less_and_less_often_and_no_more_than_so_much_waits(ends):
    guard = ends.guards[COORDINATOR]
    asked = [len(guard.seal([(EDGE, b"%d" % k, False)])) for k in range(100)]
    assert asked == [1] + [0] * 99
    times, now = [], 0.0
    while now < 300:
        now = guard.due
        times += [now] * len(guard.tick(now))
    assert times[:4] == pytest.approx([0.4, 1.2, 2.8, 6.0])
    assert times[-1] - times[-2] == 60
    ends.carry([guard._request("n0")])
    assert ends.heard["n0"] == [b"%d" % k for k in range(84, 100)]
    assert guard.due == float("inf")
