"""Masked sums by real daemons with certificates: what they end with, what owners refuse, a device that is killed."""

import csv
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.support.daemons.deployed_ring import SENSORS, models, rows, to_the_end
from tests.support.daemons.masked_fleet import ROUNDS, SUM, masked_fleet

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_every_device_has_the_model_and_has_paid_for_its_shares_and_no_key_is_left(tmp_path, mosquitto_program, stack):
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack)
    to_the_end(fleet)
    found = [kept["x"] for kept in models(fleet).values()]
    assert all(np.array_equal(found[0], x) and np.any(x) for x in found)
    for name in SENSORS:
        assert [kind for kind, _ in fleet.spends(name)] == ["gaussian"] * ROUNDS
        with closing(sqlite3.connect(fleet.state(name) / f"{name}.ledger")) as db:
            assert db.execute("SELECT count(*) FROM secret").fetchone() == (0,)
            assert db.execute("SELECT DISTINCT honest FROM spend").fetchall() == [(2,)]


def test_daemons_add_up_a_statistic_and_all_are_told_what_it_is(tmp_path, mosquitto_program, stack):
    """Against the mean of all rows, within five deviations of the noise that the coordinator's table says."""
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack, scenario=SUM)
    to_the_end(fleet)
    (table,) = (tmp_path / "fleet").rglob("masked-*-sum.csv")
    with table.open(newline="") as file:
        said = list(csv.DictReader(file))
    value, sd = (np.array([float(row[key]) for row in said]) for key in ("value", "sd"))
    A = np.concatenate([rows(seed=i)[0] for i in range(len(SENSORS))])
    clipped = A * np.minimum(1.0, 1.0 / np.linalg.norm(A, axis=1))[:, None]
    assert np.abs(value - clipped.mean(axis=0)).max() < 5 * sd.max()
    found = models(fleet)
    assert all(np.allclose(found[name]["x"] / len(A), value) for name in SENSORS)
    for name in SENSORS:
        assert [kind for kind, _ in fleet.spends(name)] == ["gaussian"]


def test_daemons_mask_with_few_neighbours_and_book_what_that_adds_to_delta(tmp_path, mosquitto_program, stack):
    few = SUM.replace("{corrupt: 1, contributors: 3}", "{corrupt: 1, neighbours: 2}")
    allow = "corrupt: 1, honest: 3, alone: 3.0, exposed: 1.0e-8"
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack, allow, few)
    to_the_end(fleet)
    found = [kept["x"] for kept in models(fleet).values()]
    assert all(np.array_equal(found[0], x) and np.any(x) for x in found)
    for name in SENSORS:
        assert [kind for kind, _ in fleet.spends(name)] == ["gaussian"]
        with closing(sqlite3.connect(fleet.state(name) / f"{name}.ledger")) as db:
            assert db.execute("SELECT count(*) FROM secret").fetchone() == (0,)
            assert db.execute("SELECT DISTINCT honest FROM spend").fetchall() == [(2,)]
            ((exposed,),) = db.execute("SELECT value FROM meta WHERE key = 'exposed'").fetchall()
            assert exposed == pytest.approx(1e-9)


def test_an_owner_who_says_nothing_of_neighbours_refuses_them(tmp_path, mosquitto_program, stack):
    few = SUM.replace("{corrupt: 1, contributors: 3}", "{corrupt: 1, neighbours: 2}")
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack, "corrupt: 1, honest: 3, alone: 3.0", few)
    for name in SENSORS:
        fleet.node(name)
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    assert "masks with few neighbours, its owner allows none (allow.masked.exposed)" in coordinator.said


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ("corrupt: 2, honest: 1, alone: 3.0", "1 corrupt contributors, its owner asks for at least 2"),
        ("corrupt: 1, honest: 3, alone: 3.0", "2 honest contributors, its owner asks for at least 3"),
        ("corrupt: 1, honest: 2, alone: 1.0", "against everybody else, its owner allows 1"),
    ],
)
def test_a_plan_beyond_what_an_owner_allows_is_refused(tmp_path, mosquitto_program, stack, allow, words):
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack, allow)
    for name in SENSORS:
        fleet.node(name)
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    assert words in coordinator.said


def test_without_an_owners_word_there_is_no_masked_run(tmp_path, mosquitto_program, stack):
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack)
    text = (tmp_path / "fleet/nodes/n1.yaml").read_text()
    (tmp_path / "fleet/nodes/n1.yaml").write_text("\n".join(x for x in text.split("\n") if "masked:" not in x))
    for name in SENSORS:
        fleet.node(name)
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 3
    assert "n1: masked sums, its owner allows none (allow.masked)" in coordinator.said


def test_a_device_whose_certificate_is_not_valid_yet_waits_as_others_do_and_takes_part_when_it_is(
    tmp_path, mosquitto_program, stack
):
    """So it is with a clock of 1970 at boot: an exit code 2 would end it for good, for its unit starts it never
    again.
    """
    fleet = masked_fleet(tmp_path / "fleet", mosquitto_program, stack)
    own = tmp_path / "fleet/certs/n1.crt"
    good = own.read_bytes()
    own.write_bytes(of_a_century_hence(tmp_path / "fleet/certs", "n1"))
    waits = fleet.start("node", "n1.yaml", "n1")
    waits.wait_for("the broker is away")
    own.with_suffix(".new").write_bytes(good)
    own.with_suffix(".new").rename(own)
    waits.wait_for("ready on ")
    nodes = [waits, *(fleet.node(name) for name in SENSORS if name != "n1")]
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for daemon in nodes:
        daemon.wait_for(" done: rounds")
        assert daemon.end() == 0


def of_a_century_hence(certs, name):
    """The certificate of a device with the same key, by the same authority, for dates that are still to come: PEM."""
    old, ca = (x509.load_pem_x509_certificate((certs / f"{who}.crt").read_bytes()) for who in (name, "ca"))
    key = load_pem_private_key((certs / "ca.key").read_bytes(), None)
    new = x509.CertificateBuilder(ca.subject, old.subject, old.public_key(), x509.random_serial_number())
    first = datetime.now(UTC) + timedelta(days=36500)
    new = new.not_valid_before(first).not_valid_after(first + timedelta(days=365))
    return new.sign(key, SHA256()).public_bytes(Encoding.PEM)
