"""Whose introduction a device accepts: nobody's but a trusted certificate's, of this run, this name and this key."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.node.masks.identity import Identity, Shared, Trust, made_up, statement, trust_of
from hushgrid.node.schema.sections import AllowMasked, Tls
from tests.support.devices.certificates import NOON, YEAR, Authority, written

RUN, KEY = b"r" * 16, b"k" * 32
KEYS = {
    "EC P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EC P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
}


def noon():
    return NOON


def shown(identity, run=RUN, node="n1", key=KEY):
    return Introduction(key, identity.certificate, identity.sign(statement(run, node, key)))


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def identity(authority):
    return Identity(*authority.signs("n1"))


@pytest.mark.parametrize("kind", KEYS)
def test_a_device_is_believed_by_its_pin_and_by_its_authority_and_not_without_either(tmp_path, authority, kind):
    identity = Identity.read("n1", *written(tmp_path, *authority.signs("n1", KEYS[kind]())))
    for trust in (Trust([identity.fingerprint], clock=noon), Trust((), [authority.certificate], noon)):
        trust.verify(RUN, "n1", shown(identity))
    for trust in (Trust(clock=noon), Trust(["0" * 64], [Authority("another").certificate], noon)):
        with pytest.raises(Refused, match=f"the introduction of n1: .* does not trust, {identity.fingerprint}"):
            trust.verify(RUN, "n1", shown(identity))


def test_what_one_node_of_a_process_has_verified_stands_for_all_and_for_nothing_else(monkeypatch):
    identities, _ = made_up(["n1"])
    trust, good, verified = Shared([identities["n1"].fingerprint]), shown(identities["n1"]), []
    wrong = Trust.wrong
    monkeypatch.setattr(Trust, "wrong", lambda *args: verified.append(args[1]) or wrong(*args))
    for _ in range(3):
        trust.verify(RUN, "n1", good)
    assert verified == ["n1"]
    for run, node, introduction in [
        (b"s" * 16, "n1", good),
        (RUN, "n2", good),
        (RUN, "n1", replace(good, key=b"l" * 32)),
    ]:
        for _ in range(2):
            with pytest.raises(Refused):
                trust.verify(run, node, introduction)


def test_another_authority_of_the_same_name_signs_for_nobody(identity):
    with pytest.raises(Refused, match="does not trust"):
        Trust((), [Authority().certificate], noon).verify(RUN, "n1", shown(identity))


def test_what_was_signed_for_something_else_is_refused(authority, identity):
    trust, good = Trust((), [authority.certificate], noon), shown(identity)
    trust.verify(RUN, "n1", good)
    other = Identity(*authority.signs("n1"))
    wrong = {
        "another run": shown(identity, run=b"s" * 16),
        "another name": shown(identity, node="n2"),
        "another key": replace(good, key=bytes(32)),
        "another device's certificate": replace(good, certificate=other.certificate),
        "no signature": replace(good, signature=b""),
        "a name that runs into the key": replace(good, signature=identity.sign(statement(RUN, "n1k", KEY[1:]))),
    }
    for what, introduction in wrong.items():
        with pytest.raises(Refused, match="found a signature that is not its certificate's") as caught:
            trust.verify(RUN, "n1", introduction)
        assert "\n" not in str(caught.value), what


def test_a_certificate_shown_by_another_member_is_refused_so_none_serves_twice(authority, identity):
    trust = Trust([identity.fingerprint], [authority.certificate], noon)
    with pytest.raises(Refused, match="the introduction of n2: found the certificate of n1, expected n2's"):
        trust.verify(RUN, "n2", shown(identity, node="n2"))


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "by its authority"])
def test_a_certificate_that_is_over_is_refused(authority, pinned):
    identity = Identity(*authority.signs("n1", until=NOON + YEAR))
    for at, fine in ((NOON, True), (NOON + 2 * YEAR, False), (NOON - 2 * YEAR, False)):
        trust = Trust([identity.fingerprint] * pinned, [authority.certificate] * (not pinned), lambda at=at: at)
        if fine:
            trust.verify(RUN, "n1", shown(identity))
        else:
            with pytest.raises(Refused, match="found a certificate for 2025-06-01 to 2027-06-01, expected a valid one"):
                trust.verify(RUN, "n1", shown(identity))


def test_an_authority_that_is_over_signs_for_nobody():
    old = Authority(until=NOON)
    identity = Identity(*old.signs("n1"))
    Trust((), [old.certificate], noon).verify(RUN, "n1", shown(identity))
    with pytest.raises(Refused, match="does not trust"):
        Trust((), [old.certificate], lambda: NOON + YEAR / 365).verify(RUN, "n1", shown(identity))


def test_bytes_that_are_no_certificate_are_refused(authority, identity):
    good = shown(identity)
    strange, _ = authority.signs("n1", ed448.Ed448PrivateKey.generate())
    der = strange.public_bytes(Encoding.DER)
    unknown = good.certificate.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03")  # X.509 version 4
    assert unknown != good.certificate
    for blob in (b"", b"no certificate", good.certificate[:-1], good.certificate + b"\0", der, unknown):
        with pytest.raises(Refused, match="found no certificate with an EC, Ed25519 or RSA key"):
            Trust((), [authority.certificate], noon).verify(RUN, "n1", replace(good, certificate=blob))


def test_made_up_members_believe_each_other_and_nobody_else():
    identities, trust = made_up(["n0", "n1"])
    for node, identity in identities.items():
        trust.verify(RUN, node, shown(identity, node=node))
    with pytest.raises(Refused, match="does not trust"):
        trust.verify(RUN, "n1", shown(made_up(["n1"])[0]["n1"]))


# --- an owner's files ---


def test_a_wrong_file_of_a_device_is_one_line(tmp_path, authority):
    (cert, key), other = (
        written(tmp_path / "n1", *authority.signs("n1")),
        written(tmp_path / "n2", *authority.signs("n2")),
    )
    (locked := tmp_path / "locked.key").write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
        )
    )
    strange = written(tmp_path / "strange", *authority.signs("n1", ed448.Ed448PrivateKey.generate()))
    wrong = {
        (str(tmp_path / "no"), key): f"tls.cert: {tmp_path / 'no'}: No such file or directory, expected PEM",
        (cert, str(tmp_path / "no")): f"tls.key: {tmp_path / 'no'}: No such file or directory, expected PEM",
        (key, key): f"tls.cert: {key}: found no certificate, expected PEM",
        (cert, cert): f"tls.key: {cert}: found no EC, Ed25519 or RSA key, expected PEM",
        (cert, other[1]): f"tls.key: {other[1]}: found another key than that of {cert}",
        (cert, str(locked)): f"tls.key: {locked}: found a key behind a password, expected one without",
        other: f"tls.cert: {other[0]}: found the certificate of n2, expected n1's",
        strange: f"tls.key: {strange[1]}: found no EC, Ed25519 or RSA key, expected PEM",
    }
    Identity.read("n1", cert, key)
    for files, line in wrong.items():
        with pytest.raises(InputError) as caught:
            Identity.read("n1", *files)
        assert str(caught.value) == line
    assert Identity.read("n1", cert, key).untimely(noon) is None
    late = Identity.read("n1", cert, key).untimely(lambda: NOON + 3 * YEAR)
    assert late == "found a certificate for 2025-06-01 to 2027-06-01, expected a valid one"


def fleet(place):
    """What a device's file says of the broker: certificates of the coordinator's own authority."""
    ca = Authority("the fleet's")
    return Tls(ca=written(place / "broker", ca.certificate, ca.key)[0])


def test_the_fleets_own_authority_is_no_authority_of_masked_runs_whatever_its_files_are_called(tmp_path, authority):
    """Whoever holds the key of `tls.ca` can certify members that do not exist. Keys are compared,
    in each file of several.
    """
    owner, tls = {"corrupt": 1, "honest": 2, "alone": 3.0}, fleet(tmp_path)
    fleets, another = Path(tls.ca).read_bytes(), authority.certificate.public_bytes(Encoding.PEM)
    renewed = Authority("the fleet's, renewed", key=authority.key)
    for name, mine, theirs in (
        ("the same file", fleets, fleets),
        ("one of two", another + fleets, fleets),
        ("one of the broker's two", another, fleets + another),
        ("another certificate of the same key", renewed.certificate.public_bytes(Encoding.PEM), another),
    ):
        (place := tmp_path / name).mkdir()
        (place / "owners.pem").write_bytes(mine)
        (place / "brokers.pem").write_bytes(theirs)
        with pytest.raises(InputError) as caught:
            trust_of(AllowMasked(**owner, ca=str(place / "owners.pem")), Tls(ca=str(place / "brokers.pem")), noon)
        line = (
            f"allow.masked.ca: {place / 'owners.pem'}: found the key of the fleet's own authority (tls.ca), "
            "expected another"
        )
        assert str(caught.value).startswith(line)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", [Encoding.PEM, Encoding.DER])
def test_a_revoked_certificate_is_believed_no_more(tmp_path, authority, form):
    """By its fingerprint, or by a list of its authority; the others of the authority are still believed."""
    owner, tls = {"corrupt": 1, "honest": 2, "alone": 3.0}, fleet(tmp_path)
    ca, _ = written(tmp_path / "ca", authority.certificate, authority.key)
    stolen, fine = (Identity(*authority.signs("n1")) for _ in range(2))
    crl = tmp_path / "revoked.crl"
    crl.write_bytes(authority.revokes(stolen.certificate).public_bytes(form))
    for named in ({"revoked": (stolen.fingerprint,)}, {"crl": str(crl)}):
        trust = trust_of(AllowMasked(**owner, ca=ca, **named), tls, noon)
        trust.verify(RUN, "n1", shown(fine))
        with pytest.raises(Refused, match=f"of n1: found a certificate that is revoked, {stolen.fingerprint}"):
            trust.verify(RUN, "n1", shown(stolen))
    later = AllowMasked(**owner, ca=ca, crl=str(crl))
    with pytest.raises(Refused, match="is revoked"):  # a list that is over says what it said
        trust_of(later, tls, lambda: NOON + YEAR / 2).verify(RUN, "n1", shown(stolen))


def test_lists_of_two_authorities_stand_in_one_file_and_those_of_others_are_one_line(tmp_path, authority):
    owner, tls, second = {"corrupt": 1, "honest": 2, "alone": 3.0}, fleet(tmp_path), Authority("a second one")
    ca, crl = tmp_path / "ca.pem", tmp_path / "revoked.crl"
    ca.write_bytes(b"".join(a.certificate.public_bytes(Encoding.PEM) for a in (authority, second)))
    pair = [(a, Identity(*a.signs("n1"))) for a in (authority, second)]
    crl.write_bytes(b"".join(a.revokes(one.certificate).public_bytes(Encoding.PEM) for a, one in pair))
    allowed = AllowMasked(**owner, ca=str(ca), crl=str(crl))
    for _, one in pair:
        with pytest.raises(Refused, match="is revoked"):
            trust_of(allowed, tls, noon).verify(RUN, "n1", shown(one))
    strange = Authority(), Authority("a third one")  # one of the right name, with another key
    wrong = {
        b"nothing": "found no list of revoked certificates, expected PEM or DER",
        **{
            a.revokes(pair[0][1].certificate).public_bytes(Encoding.PEM): f"found a list of CN={name}, expected one"
            for a, name in zip(strange, ("an authority", "a third one"), strict=True)
        },
    }
    for blob, line in wrong.items():
        crl.write_bytes(blob)
        with pytest.raises(InputError) as caught:
            trust_of(allowed, tls, noon)
        assert str(caught.value).startswith(f"allow.masked.crl: {crl}: {line}")


def test_an_owner_trusts_the_peers_or_the_authority_that_its_file_names(tmp_path, authority, identity):
    owner, tls = {"corrupt": 1, "honest": 2, "alone": 3.0}, fleet(tmp_path)
    ca, _ = written(tmp_path / "ca", authority.certificate, authority.key)
    for named in ({"peers": (identity.fingerprint,)}, {"ca": ca}):
        trust_of(AllowMasked(**owner, **named), tls, noon).verify(RUN, "n1", shown(identity))
    device, key = written(tmp_path / "n1", *authority.signs("n1"))
    wrong = {
        str(tmp_path / "no"): f"allow.masked.ca: {tmp_path / 'no'}: No such file or directory, expected PEM",
        key: f"allow.masked.ca: {key}: found no certificate, expected PEM",
        device: f"allow.masked.ca: {device}: found a certificate that may sign none, expected a CA's",
    }
    for file, line in wrong.items():
        with pytest.raises(InputError) as caught:
            trust_of(AllowMasked(**owner, ca=file), tls, noon)
        assert str(caught.value) == line


def test_an_identity_says_nothing_of_its_key(authority):
    certificate, key = authority.signs("n1")
    number = key.private_numbers().private_value
    said = repr(Identity(certificate, key)) + str(Identity(certificate, key)) + repr(Trust((), [certificate]))
    assert str(number) not in said
    assert f"{number:x}" not in said
