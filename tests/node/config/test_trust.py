"""`trust:` in files: what is wrong is said in one line, and what it gives in words."""

import re
import shutil

import pytest

from hushgrid.cli.owner.check import check
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from tests.support.daemons.deployed_fleet import certificates
from tests.support.daemons.site_fleet import SCENARIO
from tests.support.paths import DEPLOY

MARK, ENDS = "ab" * 32, ("coordinator", "s1")


@pytest.fixture
def device(tmp_path):
    """The device z1 of deploy/ with certificates, and a function that adds the section to its file."""
    shutil.copytree(DEPLOY / "nodes", tmp_path / "nodes")
    certificates(tmp_path / "certs", "z1", "z2")
    file = tmp_path / "nodes" / "z1.yaml"
    text = file.read_text()

    def write(trust):
        paths = re.sub(r"(ca|crl|cert|key): (\w)", r"\1: ../certs/\2", trust)
        file.write_text(f"{text}trust: {paths}\n")
        return file

    return write


@pytest.mark.parametrize(
    ("trust", "line"),
    [
        ("{}", "trust: Expected one of fingerprints and ca"),
        (f"{{ca: ca.crt, fingerprints: {{z2: {MARK}}}}}", "trust: Expected one of fingerprints and ca"),
        (f"{{fingerprints: {{coordinator: {MARK}}}, crl: crl.pem}}", "trust: Expected crl beside ca alone"),
        ("{fingerprints: {coordinator: AB}}", "trust.fingerprints"),
        ("{ca: ca.crt, cert: z1.crt}", "trust: Expected both of cert and key, or neither"),
    ],
)
def test_a_section_that_says_too_much_or_too_little_is_refused(device, trust, line):
    with pytest.raises(InputError, match=line.split("Expected")[0].strip(" :")) as error:
        load_device(device(trust))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("trust", "line"),
    [
        ("{ca: none.crt}", "trust.ca: .*none.crt: No such file or directory, expected PEM"),
        ("{ca: z1.crt}", "trust.ca: .*z1.crt: found a certificate that may sign none, expected a CA's"),
        ("{ca: ca.crt, crl: ca.crt}", "trust.crl: .*ca.crt: found no list of revoked certificates"),
        ("{ca: ca.crt, cert: z2.crt, key: z2.key}", "trust.cert: .*z2.crt: found the certificate of z2, expected z1's"),
        ("{ca: ca.crt, cert: z1.crt, key: z2.key}", "trust.key: .*z2.key: found another key than that of"),
        (f"{{fingerprints: {{z2: {MARK}}}}}", "trust.fingerprints: found none of coordinator, expected one"),
    ],
)
def test_check_says_what_is_wrong_with_its_files(device, trust, line):
    with pytest.raises(InputError, match=line):
        check(device(trust))


def test_check_says_in_words_what_trust_gives(device, tmp_path):
    said = check(device("{ca: ca.crt}"))
    assert f"sealed in this session by whom {tmp_path}/certs/ca.crt has certified under that name" in said
    assert "neither plan, answer nor end a run" in said
    assert "by the certificates of coordinator, z2" in check(
        device(f"{{fingerprints: {{coordinator: {MARK}, z2: {MARK}}}}}")
    )


def test_a_coordinator_needs_the_fingerprint_of_every_member(tmp_path):
    certificates(tmp_path / "certs", "coordinator")
    file = tmp_path / "coordinator.yaml"
    (tmp_path / "scenario.yaml").write_text((DEPLOY / "scenario.yaml").read_text())
    trust = f"trust: {{fingerprints: {{z1: {MARK}, z2: {MARK}}}}}\n"
    file.write_text((DEPLOY / "coordinator.yaml").read_text() + trust)
    assert load_coordinator(file).trust is not None
    with pytest.raises(InputError, match=r"trust\.fingerprints: found none of z3, expected one"):
        check(file)


def test_a_coordinator_of_sites_needs_the_fingerprint_of_every_site(tmp_path):
    certificates(tmp_path / "certs", "coordinator")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    file = tmp_path / "coordinator.yaml"
    tls = "tls: {ca: certs/ca.crt, cert: certs/coordinator.crt, key: certs/coordinator.key}"
    text = f"fleet: taps\nbroker: mqtts://broker.example\n{tls}\nscenario: scenario.yaml\nstate: lib\n"
    file.write_text(f"{text}trust: {{fingerprints: {{s1: {MARK}}}}}\n")
    with pytest.raises(InputError, match=r"trust\.fingerprints: found none of s2, expected one"):
        check(file)
    file.write_text(f"{text}trust: {{fingerprints: {{s1: {MARK}, s2: {MARK}}}}}\n")
    assert "by the certificates of s1, s2" in check(file)


@pytest.mark.parametrize(
    ("above", "below", "line"),
    [
        ("{ca: none.crt}", "", "above: trust.ca: .*none.crt: No such file"),
        (f"{{fingerprints: {{s2: {MARK}}}}}", "", "above: trust.fingerprints: found none of coordinator, expected one"),
        ("{ca: certs/ca.crt}", "trust: {ca: certs/s1.crt}", "trust.ca: .*s1.crt: found a certificate that may sign"),
    ],
)
def test_what_is_wrong_with_a_sites_trust_is_one_line_that_says_of_which_level(tmp_path, above, below, line):
    file = site_file(tmp_path, above, below)
    with pytest.raises(InputError, match=line) as error:
        check(file)
    assert "\n" not in str(error.value)


def test_check_says_what_a_site_trusts_on_either_level(tmp_path):
    said = check(site_file(tmp_path, "{ca: certs/ca.crt}", "trust: {ca: certs/ca.crt}"))
    assert "towards its devices, trust: only messages count that are sealed" in said
    assert "towards the fleet taps, trust: only messages count that are sealed" in said


def site_file(tmp_path, above, below):
    certificates(tmp_path / "certs", "coordinator", "s1")
    own = {name: f"tls: {{ca: certs/ca.crt, cert: certs/{name}.crt, key: certs/{name}.key}}" for name in ENDS}
    file = tmp_path / "s1.yaml"
    file.write_text(
        f"fleet: taps-s1\nbroker: mqtts://s1.example\n{own['coordinator']}\nstate: lib\n{below}\n"
        f"above:\n  site: s1\n  fleet: taps\n  broker: mqtts://broker.example\n  {own['s1']}\n"
        f"  peers: [{MARK}]\n  trust: {above}\n"
    )
    return file
