"""The Debian package: what is in it, and what dpkg makes of it in an image: installed without a network, upgraded, not
upgraded to what is broken, removed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons.wheelhouses import changed, names
from tests.support.paths import DEPLOY

pytestmark = [
    pytest.mark.xdist_group("install"),
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="missing: dpkg-deb"),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root's rights")
ENVIRONMENT = {"PATH": f"{Path(sys.executable).resolve().parent}:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
DEVICE = """node: n0
fleet: ring
broker: mqtt://127.0.0.1:1883
state: {state}
data: rows.csv
labels: {{classes: 2}}
budget: {{epsilon: 20.0, adjacency: {{replace-one-record: {{clip: 1.0}}}}}}
allow: {{algorithms: [recal], per_run: {{epsilon: 5.0}}}}
"""


def package(house: Path, directory: Path, umask: int = 0o022) -> Path:
    command = ["sh", house / "deploy/deb.sh", house, directory]
    environment = {**ENVIRONMENT, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, env=environment, umask=umask, check=True, capture_output=True)
    (made,) = directory.glob("*.deb")
    return made


def field(deb: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def rows(house, tmp_path_factory):
    """The wheelhouse, without the wheels that only zones need."""
    directory = tmp_path_factory.mktemp("rows") / "house"
    changed(house, directory, {})
    needed = names((directory / "requirements-rows.txt").read_text())
    for wheel in (directory / "wheels").iterdir():
        if wheel.name.split("-")[0] not in needed:
            wheel.unlink()
    return directory


@pytest.fixture(scope="module")
def deb(rows, tmp_path_factory):
    return package(rows, tmp_path_factory.mktemp("deb"))


# --- the file ---


@pytest.mark.parametrize(
    ("release", "machine", "version", "arch", "python"),
    [
        ("0.3.0", "x86_64 3.11", "0.3.0", "amd64", "python3 (>= 3.11), python3 (<< 3.12)"),
        ("0.3.0rc1", "aarch64 3.13", "0.3.0~rc1", "arm64", "python3 (>= 3.13), python3 (<< 3.14)"),
    ],
)
def test_a_package_says_for_what_it_is(tmp_path, release, machine, version, arch, python):
    house = tmp_path / "house"
    (house / "wheels").mkdir(parents=True)
    shutil.copytree(DEPLOY, house / "deploy")
    (house / "machine").write_text(machine + "\n")
    (house / "requirements-rows.txt").write_text(f"hushgrid=={release} --hash=sha256:00\n")
    made = package(house, tmp_path / "made")
    assert made.name == f"hushgrid_{version}_{arch}.deb"
    assert (field(made, "Version"), field(made, "Architecture")) == (version, arch)
    assert field(made, "Depends") == f"passwd, {python}, python3-venv"
    assert subprocess.run(["dpkg", "--compare-versions", version, "le", "0.3.0"]).returncode == 0


def test_a_package_holds_the_wheelhouse_with_its_hashes_and_the_same_wheelhouse_gives_the_same_bytes(
    rows, deb, tmp_path
):
    listed = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    inside = {line.split("/usr/lib/hushgrid/")[1] for line in listed.splitlines() if "/usr/lib/hushgrid/" in line} - {
        ""
    }
    there = {f"{path.relative_to(rows)}{'/' * path.is_dir()}" for path in rows.rglob("*")}
    assert inside == there
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    again = package(changed(rows, tmp_path / "copy", {}), tmp_path / "again", umask=0o077)
    assert again.read_bytes() == deb.read_bytes()


def test_a_folder_that_is_no_wheelhouse_is_refused(tmp_path):
    done = subprocess.run(["sh", DEPLOY / "deb.sh", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr[:7]) == (2, "usage: ")


# --- what dpkg makes of it ---


class Image:
    """A root with dpkg's own records and nothing else; maintainer scripts and the program run here."""

    def __init__(self, root: Path) -> None:
        self.root, self.opt, self.etc = root, root / "opt/hushgrid", root / "etc/hushgrid"
        for folder in ("updates", "info", "triggers"):
            (root / "var/lib/dpkg" / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        self.state = root / "var/lib/hushgrid/n0"

    def dpkg(self, *words: object) -> subprocess.CompletedProcess[str]:
        force = ("--force-script-chrootless", "--force-depends")
        command = ["unshare", "--net", "dpkg", f"--root={self.root}", *force, *words]  # no network, not even loopback
        environment = {**ENVIRONMENT, "HUSHGRID_EXTRA": "rows", "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def install(self, deb: Path) -> subprocess.CompletedProcess[str]:
        return self.dpkg("--install", deb)

    @property
    def status(self) -> str:
        text = (self.root / "var/lib/dpkg/status").read_text()
        return re.findall("^Status: (.*)$", text, re.M)[0] if text.strip() else ""

    @property
    def current(self) -> str:
        return os.readlink(self.opt / "current")

    def says(self, *words: str) -> str:
        done = subprocess.run([self.opt / "bin/hushgrid", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def possessions(self) -> dict[str, str]:
        """What belongs to the device, and not to the program."""
        folders = (self.etc, self.root / "var/lib/hushgrid", self.root / "var/lib/hushgrid-marks")
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_text() for path in files}


@pytest.fixture(scope="module")
def image(deb, tmp_path_factory):
    made = Image(tmp_path_factory.mktemp("image"))
    done = made.install(deb)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def device(image):
    """A device that is configured, with a ledger and a mark."""
    image.state.mkdir(parents=True, exist_ok=True)
    mark = image.root / "var/lib/hushgrid-marks/n0/n0.mark"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text("the mark")
    (image.state / "n0.copy").write_text("a ledger's copy")
    (image.etc / "nodes/rows.csv").write_text("a,b,label\n.1,.2,0\n.2,.1,1\n")
    (image.etc / "nodes/n0.yaml").write_text(DEVICE.format(state=image.state))
    image.says("check", str(image.etc / "nodes/n0.yaml"))
    return image


@as_root
def test_an_installed_package_has_program_and_units_and_enables_and_configures_nothing(image):
    assert image.status == "install ok installed"
    assert os.readlink(image.root / "usr/bin/hushgrid") == "/opt/hushgrid/bin/hushgrid"
    assert image.says("--version").split()[-1] in image.current
    units = image.root / "etc/systemd/system"
    assert sorted(path.name for path in units.iterdir()) == ["hushgrid-coordinator.service", "hushgrid-node@.service"]
    assert [path for path in image.etc.rglob("*") if not path.is_dir()] == []
    assert not image.state.exists()


@as_root
def test_an_upgrade_is_taken_through_the_gate_and_the_release_before_can_be_had_back(device, deb, rows, tmp_path):
    before = device.current
    newer = package(changed(rows, tmp_path / "newer", {"hushgrid/deploy/more.txt": "more"}), tmp_path / "made")
    assert device.install(newer).returncode == 0
    assert device.current != before
    assert (device.opt / before).exists()
    done = device.install(deb)  # the package before, which is the release before
    assert (done.returncode, device.current, device.status) == (0, before, "install ok installed")


@as_root
@pytest.mark.long
def test_a_release_that_fails_the_gate_fails_the_upgrade_in_one_line_and_the_one_before_goes_on(
    device, deb, rows, tmp_path
):
    before, possessions = device.current, device.possessions()
    broken = changed(rows, tmp_path / "broken", {"hushgrid/cli/owner/check.py": "raise ImportError('a defect')\n"})
    done = device.install(package(broken, tmp_path / "made"))
    assert done.returncode == 1
    why, end = (line for line in done.stderr.splitlines() if line.startswith("install.sh: "))
    assert "does not accept" in why
    assert end == f"install.sh: {before.removeprefix('releases/')} goes on"
    assert (device.current, device.possessions()) == (before, possessions)
    assert device.status == "install ok half-configured"
    device.says("check", str(device.etc / "nodes/n0.yaml"))
    assert device.install(deb).returncode == 0
    assert (device.current, device.status) == (before, "install ok installed")


@as_root
@pytest.mark.long  # in the engine's own tests it is seen every time
def test_a_wheel_that_differs_from_its_hash_fails_the_upgrade(device, deb, rows, tmp_path):
    before = device.current
    planted = changed(rows, tmp_path / "planted", {"hushgrid/deploy/more.txt": "more"}, told=False)
    for path in planted.glob("requirements-*.txt"):  # another list, so another release
        text = path.read_text()
        path.unlink()
        path.write_text(text + "\n")
    done = device.install(package(planted, tmp_path / "made"))
    assert done.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert re.search("^install.sh: .* cannot be installed: nothing is changed$", done.stderr, re.M)
    assert device.current == before
    assert device.install(deb).returncode == 0


@as_root
@pytest.mark.long
def test_a_removed_and_a_purged_package_leave_configuration_ledgers_and_marks(device, deb):
    possessions = device.possessions()
    assert device.dpkg("--remove", "hushgrid").returncode == 0
    assert not device.opt.exists()
    assert not (device.root / "usr/lib/hushgrid").exists()
    assert [*device.root.glob("etc/systemd/system/hushgrid-*")] == []
    assert device.possessions() == possessions
    done = device.dpkg("--purge", "hushgrid")
    assert (done.returncode, device.possessions()) == (0, possessions)
    assert "a purge deletes no ledger, no mark and no configuration" in done.stderr
    assert device.install(deb).returncode == 0  # and it comes back to what was left
    device.says("check", str(device.etc / "nodes/n0.yaml"))
