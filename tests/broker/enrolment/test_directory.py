"""The directory of a fleet: who is enrolled, renewed, put out; and that no key of a box is ever in it."""

import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from hushgrid.broker.enrolment import authority
from hushgrid.broker.enrolment.authority import Authority, Request, request, write_key
from hushgrid.broker.enrolment.cut import KINDS
from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.cli.main import main
from hushgrid.cli.owner import doctor
from hushgrid.cli.owner.findings import Place
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator, load_site
from hushgrid.node.config.device import load_device
from hushgrid.node.config.trust import credentials_of
from hushgrid.node.masks import identity
from tests.support.daemons.site_fleet import SCENARIO
from tests.support.paths import DEPLOY

URL = "mqtts://broker.example:8883"


def enrolled(fleet, box, name="z1"):
    made = request(name, box)
    return fleet.enrol(name, made, fleet.authority())


def revoked(fleet):
    read = x509.load_pem_x509_crl((fleet.path / "broker" / "crl.pem").read_bytes())
    return {f"{one.serial_number:x}" for one in read}


def test_the_directory_has_what_the_broker_reads_and_neither_the_authoritys_key_nor_a_boxs(fleet, tmp_path):
    enrolled(fleet, tmp_path / "box")
    files = {str(path.relative_to(fleet.path)) for path in fleet.path.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith("broker/")} == {
        "broker/mosquitto.conf", "broker/hushgrid.acl", "broker/crl.pem",
        "broker/certs/ca.crt", "broker/certs/broker.crt", "broker/certs/broker.key",
    }  # fmt: skip
    assert {name for name in files if name.endswith(".key")} == {"ca.key", "broker/certs/broker.key"}
    assert {"ca.crt", "z1.crt", "scenario.yaml", "coordinator.yaml", "watch.yaml"} <= files
    assert (fleet.path / "ca.key").stat().st_mode & 0o077 == 0


def test_identities_are_read_again_as_they_were_written(fleet, tmp_path):
    signed = enrolled(fleet, tmp_path / "box")
    again = FleetDirectory(fleet.path)
    assert again.names() == ["broker", "z1"]
    assert again.certificate("z1") == signed
    written = json.loads((fleet.path / "identities.json").read_text())["z1"]
    assert (written["name"], written["role"], written["state"]) == ("z1", "device", "enrolled")
    assert written["certificates"][0]["serial"] == f"{signed.serial_number:x}"


def test_a_name_is_enrolled_once_and_only_by_a_request_for_it(fleet, tmp_path):
    made = request("z1", tmp_path / "box")
    with pytest.raises(InputError, match=r"the request: found it for z1, expected one for z2"):
        fleet.enrol("z2", made, fleet.authority())
    fleet.enrol("z1", made, fleet.authority())
    other = request("z1", tmp_path / "another")
    with pytest.raises(InputError, match=r"z1: found it enrolled, .*renew"):
        fleet.enrol("z1", other, fleet.authority())
    assert fleet.certificate("z1").public_key() == made.key


def test_after_a_renewal_both_certificates_are_good_or_the_new_one_alone(fleet, tmp_path):
    first = enrolled(fleet, tmp_path / "1")
    second = fleet.renew("z1", request("z1", tmp_path / "2"), fleet.authority())
    assert revoked(fleet) == set()
    fleet.renew("z1", request("z1", tmp_path / "3"), fleet.authority(), now_only=True)
    assert revoked(fleet) == {f"{one.serial_number:x}" for one in (first, second)}


def test_a_name_that_was_put_out_is_on_the_list_for_ever_and_may_be_enrolled_again(fleet, tmp_path):
    lost = enrolled(fleet, tmp_path / "1")
    fleet.revoke("z1", fleet.authority())
    with pytest.raises(InputError, match=r"z1: found it revoked"):
        fleet.renew("z1", request("z1", tmp_path / "2"), fleet.authority())
    enrolled(fleet, tmp_path / "3")
    assert revoked(fleet) == {f"{lost.serial_number:x}"}
    fleet.revoke("z1", fleet.authority())
    assert len(revoked(fleet)) == 2


def test_the_authoritys_key_may_stand_elsewhere(tmp_path):
    key = tmp_path / "stick.key"
    fleet = FleetDirectory.make(tmp_path / "F", FleetFile(fleet="demo", broker=URL), DEPLOY / "scenario.yaml", key)
    assert not (fleet.path / "ca.key").exists()
    with pytest.raises(InputError, match=r"ca\.key: No such file or directory, .*--ca-key FILE"):
        fleet.authority()
    assert fleet.authority(key).certificate == x509.load_pem_x509_certificate((fleet.path / "ca.crt").read_bytes())


# --- the commands: whatever is wrong is one line, exit code 2 ---


def fails(capsys, *arguments: str | Path) -> str:
    assert main(["fleet", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_commands_make_a_fleet(tmp_path, capsys):
    init = ["init", tmp_path / "F", "--fleet", "demo", "--broker", URL, "--scenario", DEPLOY / "scenario.yaml"]
    assert main(["fleet", *map(str, init), "--here", str(tmp_path / "certs")]) == 0
    assert main(["fleet", "request", "z1", "--out", str(tmp_path / "box")]) == 0
    on_box = capsys.readouterr().out
    csr = tmp_path / "box" / "z1.csr"
    assert csr.read_text() in on_box
    assert main(["fleet", "enrol", str(tmp_path / "F"), "z1", "--request", str(csr)]) == 0
    at_operator = capsys.readouterr().out
    fingerprint = Request.read(csr.read_bytes(), "").fingerprint
    assert fingerprint in on_box
    assert fingerprint in at_operator
    assert main(["fleet", "list", str(tmp_path / "F")]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["broker", "coordinator", "watch", "z1"]
    assert {path.name for path in (tmp_path / "certs").glob("*.key")} == {"coordinator.key", "watch.key"}
    assert "found an existing path" in fails(capsys, *init)


def test_a_certificate_is_told_as_the_files_of_others_name_it(fleet, tmp_path, capsys):
    for what in ("enrol", "renew"):
        request("z1", tmp_path / what)
        assert main(["fleet", what, str(fleet.path), "z1", "--request", str(tmp_path / what / "z1.csr")]) == 0
        der = FleetDirectory(fleet.path).certificate("z1").public_bytes(Encoding.DER)
        assert f"`peers` say {identity.fingerprint(der)}" in capsys.readouterr().out


def test_what_is_wrong_is_one_line(fleet, tmp_path, capsys):
    here = fleet.path
    request("z1", tmp_path / "box")
    csr = tmp_path / "box" / "z1.csr"
    assert "found no fleet.yaml" in fails(capsys, "list", tmp_path)
    assert "No such file" in fails(capsys, "enrol", here, "z1", "--request", tmp_path / "none")
    assert "expected one for z2" in fails(capsys, "enrol", here, "z2", "--request", csr)
    assert "lower-case" in fails(capsys, "enrol", here, "Z1", "--request", csr)
    assert "found no z1" in fails(capsys, "renew", here, "z1", "--request", csr)
    assert "found no certificate request" in fails(capsys, "enrol", here, "z1", "--request", here / "ca.crt")
    other = tmp_path / "other.key"
    (here / "ca.key").rename(other)
    assert "--ca-key FILE" in fails(capsys, "enrol", here, "z1", "--request", csr)
    key = Authority.make("demo")
    write_key(key.key, tmp_path / "foreign.key")
    line = fails(capsys, "enrol", here, "z1", "--request", csr, "--ca-key", tmp_path / "foreign.key")
    assert "found another key than that of" in line
    init = ("init", tmp_path / "G", "--fleet", "demo", "--scenario", DEPLOY / "scenario.yaml", "--broker")
    assert "expected mqtts://" in fails(capsys, *init, "mqtt://broker.example")
    assert not (tmp_path / "G").exists()


def test_doctor_watches_the_end_of_the_list_where_the_directory_is(fleet, monkeypatch):
    place = Place(fleet.path / "coordinator.yaml", "coordinator", "", "demo", URL, None, fleet.path, None, ())
    (finding,) = doctor._revoked(place)
    assert (finding.grade, finding.what) == ("ok", "revoked")
    monkeypatch.setattr(authority, "LIST_LIFETIME", authority.DAY)
    fleet.write_list(fleet.authority())
    (finding,) = doctor._revoked(place)
    assert finding.grade == "warn"
    assert "hushgrid fleet retire" in finding.do


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_broker_says_what_ends_a_connection(kind):
    cut = KINDS[kind]("z3")
    assert cut.reload
    assert cut.takes_over == (kind in ("mosquitto", "dynsec"))
    if kind in ("rabbitmq", "emqx"):
        assert "z3" in cut.reload


def test_the_brokers_own_certificate_is_not_revoked(fleet, capsys):
    assert "found the broker, expected a client" in fails(capsys, "revoke", fleet.path, "broker")


# --- a fleet that trusts no broker ---


@pytest.mark.parametrize(
    ("scenario", "members"), [(DEPLOY / "scenario.yaml", ["z1", "z2", "z3"]), (DEPLOY / "ring/scenario.yaml", None)]
)
def test_trust_makes_the_files_of_every_end_with_it(tmp_path, scenario, members):
    """Zones and rows: what each file names is there once the box has its certificate and its rows."""
    init = ("init", tmp_path / "F", "--fleet", "demo", "--broker", URL, "--scenario", scenario, "--trust")
    assert main(["fleet", *map(str, init), "--here", str(tmp_path / "certs")]) == 0
    fleet = FleetDirectory(tmp_path / "F")
    assert fleet.trust
    names = fleet.members()
    assert members in (None, names)
    trusted = load_coordinator(fleet.path / "coordinator.yaml").trust
    assert (trusted.ca, trusted.crl) == tuple(str(tmp_path / "certs" / file) for file in ("ca.crt", "crl.pem"))
    for name in names:
        box = fleet.box(name)
        assert main(["fleet", "request", name, "--out", str(box)]) == 0
        assert main(["fleet", "enrol", str(fleet.path), name, "--request", str(box / f"{name}.csr")]) == 0
        config = load_device(box / f"{name}.yaml")
        assert credentials_of(name, config.trust, config.tls, "a file").trust is not None
    if members:
        assert main(["check", str(fleet.box("z1") / "z1.yaml")]) == 0


def test_every_box_has_the_list_of_revoked_that_the_broker_has(tmp_path, capsys):
    init = ("init", tmp_path / "F", "--fleet", "demo", "--broker", URL, "--scenario", DEPLOY / "scenario.yaml")
    assert main(["fleet", *map(str, init), "--trust"]) == 0
    fleet = FleetDirectory(tmp_path / "F")
    enrolled(fleet, tmp_path / "box", "z2")
    capsys.readouterr()
    assert main(["fleet", "revoke", str(fleet.path), "z2"]) == 0
    assert f"{fleet.path}/crl.pem: to every end" in capsys.readouterr().out
    lists = [fleet.path / "crl.pem", *(fleet.box(z) / "crl.pem" for z in fleet.members())]
    assert {file.read_bytes() for file in lists} == {(fleet.path / "broker/crl.pem").read_bytes()}
    assert len(revoked(fleet)) == 1


def test_a_plan_that_no_device_could_consent_to_makes_no_directory(tmp_path, capsys):
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("corrupt: 0", "corrupt: 6"))
    init = ("init", tmp_path / "F", "--fleet", "demo", "--broker", URL, "--scenario", tmp_path / "scenario.yaml")
    fails(capsys, *init, "--trust")
    assert not (tmp_path / "F").exists()


# --- sites with a bridged broker ---


@pytest.fixture
def bridged(tmp_path):
    init = ("init", tmp_path / "B", "--fleet", "demo", "--broker", URL, "--scenario", DEPLOY / "scenario.yaml")
    sites = ("--bridge", "north", "mqtts://north.example", "z1,z2", "--bridge", "south", "mqtts://south.example", "z3")
    assert main(["fleet", *map(str, (*init, *sites))]) == 0
    return FleetDirectory(tmp_path / "B")


def test_each_site_has_a_folder_with_a_key_and_a_certificate_that_serves_and_asks(bridged):
    for name in ("north", "south"):
        folder = bridged.folder(name)
        made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert made == {
            "mosquitto.conf", "hushgrid.acl", "crl.pem", "certs/ca.crt", "certs/broker.crt", "certs/broker.key",
        }  # fmt: skip
        uses = bridged.certificate(name).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert {*uses} == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
        assert bridged.identity(name).role == "bridge"
    assert bridged.broker_of("z1") == "mqtts://north.example"
    assert bridged.broker_of("coordinator") == URL


def test_a_site_that_was_put_out_has_no_rights_above_and_no_bridge_and_neither_have_its_devices(bridged):
    bridged.revoke("north", bridged.authority())
    bridged.write_broker()
    above = (bridged.folder("broker") / "hushgrid.acl").read_text()
    assert "user south" in above
    assert not any(f"user {name}" in above for name in ("north", "z1", "z2"))
    assert "remote_clientid" not in (bridged.folder("north") / "mosquitto.conf").read_text()
    assert "remote_clientid south" in (bridged.folder("south") / "mosquitto.conf").read_text()


def test_bridges_are_mosquittos(tmp_path, bridged, capsys):
    init = ("init", tmp_path / "N", "--fleet", "demo", "--broker", URL, "--scenario", DEPLOY / "scenario.yaml")
    site = ("--broker-kind", "nats", "--bridge", "north", "mqtts://north.example", "z1")
    assert main(["fleet", *map(str, (*init, *site))]) == 2
    assert "--bridge: found --broker-kind nats, expected mosquitto" in capsys.readouterr().err
    assert not (tmp_path / "N").exists()
    assert main(["fleet", "acl", str(bridged.path), "--for", "nats", "--write"]) == 2
    assert main(["fleet", "verify", str(bridged.path), "--bridge", "west"]) == 2
    assert "--bridge: found 'west', expected north, south" in capsys.readouterr().err


# --- sites ---


ZONES_IN_SITES = (
    (DEPLOY / "scenario.yaml").read_text().replace("problem:\n", "problem:\n  sites: [[z1, z2], [z3]]\n", 1)
)


@pytest.mark.parametrize("scenario", [SCENARIO, ZONES_IN_SITES], ids=["masked", "zones"])
def test_the_generated_file_of_a_site_is_one_that_its_coordinator_takes(tmp_path, capsys, scenario):
    (tmp_path / "scenario.yaml").write_text(scenario)
    common, here = ["--scenario", str(tmp_path / "scenario.yaml"), "--trust"], tmp_path / "certs"
    assert main(["fleet", "init", str(tmp_path / "top"), "--fleet", "taps", "--broker", URL, *common]) == 0
    above = FleetDirectory(tmp_path / "top")
    for name in ("s1", "s2"):
        enrolled(above, here, name)
    above.hand_over("s1", here)
    site = ["--broker", "mqtts://site1.example", "--site", "s1", "--above", str(above.path), "--here", str(here)]
    assert main(["fleet", "init", str(tmp_path / "low"), "--fleet", "taps-s1", *site, *common]) == 0
    capsys.readouterr()
    assert main(["check", str(tmp_path / "low/coordinator.yaml")]) == 0
    said = capsys.readouterr().out
    assert f"towards the fleet taps, trust: only messages count that are sealed in this session by whom {here}" in said
    assert "above-crl.pem revokes" in said
    of = load_site(tmp_path / "low/coordinator.yaml").above
    assert (of.case, of.peers is None) == (("case14", True) if scenario is ZONES_IN_SITES else (None, False))


def test_the_fleet_of_sites_and_a_fleet_a_site_are_made_from_one_scenario(tmp_path, capsys):
    """The coordinator of a site has the files of both: its own fleet's, and its certificate in the fleet above."""
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    common = ["--scenario", str(tmp_path / "scenario.yaml")]
    top, low, other = (str(tmp_path / name) for name in ("top", "s1", "other"))
    assert main(["fleet", "init", top, "--fleet", "taps", "--broker", URL, *common, "--trust"]) == 0
    above = FleetDirectory(Path(top))
    assert above.members() == ["s1", "s2"]
    assert not above.box("s1").exists()
    init = ["fleet", "init", low, "--fleet", "taps-s1", *common]
    site = [*init, "--broker", "mqtts://site1.example:8883", "--site", "s1"]
    assert main([*site, "--above", top]) == 2
    assert "--above: found no certificate of s1, s2 in" in capsys.readouterr().err
    assert not Path(low).exists()
    for name in ("s1", "s2"):
        enrolled(above, tmp_path / "keys", name)
    assert main([*site, "--above", top, "--trust"]) == 0
    fleet = FleetDirectory(Path(low))
    assert fleet.members() == fleet.access().devices == ["n0", "n1", "n2"]
    config = load_site(fleet.path / "coordinator.yaml")
    patient = load_coordinator(above.path / "coordinator.yaml").silent_s
    assert patient > config.wait_s + 2 * config.silent_s  # else a site that waits for a device is taken for silent
    assert (config.fleet, config.above.fleet, config.above.site, config.above.broker) == ("taps-s1", "taps", "s1", URL)
    pins = [identity.fingerprint(above.certificate(s).public_bytes(Encoding.DER)) for s in ("s1", "s2")]
    assert list(config.above.peers) == pins
    assert config.trust.crl == str(fleet.path / "certs/crl.pem")
    assert config.above.trust.crl == str(fleet.path / "certs/above-crl.pem")
    assert load_device(fleet.box("n0") / "n0.yaml").trust is not None
    assert (fleet.path / "above-ca.crt").read_bytes() == (Path(top) / "ca.crt").read_bytes()
    capsys.readouterr()
    for wrong, words in (
        (site, "--site: found one of --site and --above, expected both"),
        ([*site[:-1], "s3", "--above", top], "--site: found s3, expected one of s1, s2"),
        ([*init, "--broker", URL, "--site", "s1", "--above", top], "--broker: found that of"),
    ):
        assert main([*wrong[:2], other, *wrong[3:]]) == 2
        assert words in capsys.readouterr().err
        assert not Path(other).exists()
