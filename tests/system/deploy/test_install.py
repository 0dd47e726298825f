"""install.sh from a wheelhouse, into an image: without a network, updated, not updated to what is broken, removed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.daemons.wheelhouses import changed, names, wheelhouse

pytestmark = pytest.mark.xdist_group("install")

DEVICE = """node: n0
fleet: ring
broker: mqtt://127.0.0.1:1883
state: {state}
data: rows.npz
labels: {{classes: 2}}
budget: {{epsilon: 20.0, adjacency: {{replace-one-record: {{clip: 1.0}}}}}}
allow: {{algorithms: [recal], per_run: {{epsilon: 5.0}}}}
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return wheelhouse(tmp_path_factory.mktemp("built") / "house")


class Image:
    """A root into which things are installed; its program runs here."""

    def __init__(self, root: Path) -> None:
        self.root, self.opt, self.etc = root, root / "opt/hushgrid", root / "etc/hushgrid"
        self.nodes = self.etc / "nodes"

    def install(self, house: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", house / "deploy/install.sh", *words]
        if os.geteuid() == 0 and shutil.which("unshare"):
            command = ["unshare", "--net", *command]  # no network at all, not even loopback
        path = f"{Path(sys.executable).resolve().parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {"PATH": path, "HUSHGRID_ROOT": str(self.root), "HUSHGRID_EXTRA": "rows", "PIP_NO_INDEX": "1"}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    @property
    def current(self) -> str:
        return os.readlink(self.opt / "current")

    def says(self, *words: str) -> str:
        done = subprocess.run([self.opt / "bin/hushgrid", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def image(house, tmp_path_factory):
    """With the node's role, and a device that is configured."""
    made = Image(tmp_path_factory.mktemp("image"))
    done = made.install(house, "node")
    assert done.returncode == 0, done.stderr
    state = made.root / "var/lib/hushgrid/n0"
    state.mkdir(parents=True)
    (state / "n0.ledger").write_text("kept")
    np.savez(made.nodes / "rows.npz", A=np.eye(4), b=np.ones(4))
    (made.nodes / "n0.yaml").write_text(DEVICE.format(state=state))
    made.says("check", str(made.nodes / "n0.yaml"))
    return made


def test_a_wheelhouse_has_built_packages_only_and_every_one_of_its_lists_has_its_hashes(house):
    assert {path.suffix for path in (house / "wheels").iterdir()} == {".whl"}
    lists = {extra: names((house / f"requirements-{extra}.txt").read_text()) for extra in ("rows", "zones", "model")}
    assert {"hushgrid", "numpy", "msgspec", "pyyaml", "paho_mqtt"} == lists["rows"]
    assert lists["zones"] >= lists["rows"] | {"scipy", "clarabel"}
    assert lists["model"] >= lists["zones"] | {"cvxpy", "networkx"}
    assert len([*(house / "wheels").iterdir()]) == len(lists["model"])
    assert not (house / "deploy" / "__init__.py").exists()


def test_the_program_runs_from_its_release_and_what_is_installed_twice_stays_as_it_is(image, house):
    version = image.says("--version").split()[-1]
    assert image.current.startswith(f"releases/{version}-")
    assert os.readlink(image.opt / "bin") == "current/bin"
    before = {path: path.stat().st_mtime_ns for path in (image.opt / "releases").rglob("*")}
    assert image.install(house, "node").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (image.opt / "releases").rglob("*")} == before
    assert (image.root / "etc/systemd/system/hushgrid-node@.service").read_bytes() == (
        house / "deploy/hushgrid-node@.service"
    ).read_bytes()


def test_a_release_that_is_half_made_is_made_again(image, house):
    (image.opt / image.current / "complete").unlink()
    shutil.rmtree(image.opt / image.current / "lib")
    assert image.install(house, "node").returncode == 0
    image.says("check", str(image.nodes / "n0.yaml"))


def test_a_wheel_that_is_not_the_one_of_the_list_changes_nothing(image, house, tmp_path):
    before = image.current
    other = changed(house, tmp_path / "other", {"hushgrid/deploy/more.txt": "more"}, told=False)
    (other / "requirements-rows.txt").write_text((other / "requirements-rows.txt").read_text() + "\n")  # another digest
    done = image.install(other, "node")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("cannot be installed: nothing is changed")
    assert image.current == before
    assert [path.name for path in (image.opt / "releases").iterdir()] == [before.removeprefix("releases/")]


def test_a_release_that_does_not_accept_what_the_one_before_accepts_is_not_taken(image, house, tmp_path):
    before = image.current
    text = "raise ImportError('a defect of this release')\n"
    done = image.install(changed(house, tmp_path / "other", {"hushgrid/cli/check.py": text}), "node")
    assert done.returncode == 1
    *_, why, end = done.stderr.splitlines()
    assert f"does not accept {image.nodes / 'n0.yaml'}: hushgrid: defect: ImportError: a defect of this release" in why
    assert end == f"install.sh: {before.removeprefix('releases/')} goes on"
    assert image.current == before
    image.says("check", str(image.nodes / "n0.yaml"))


def test_a_new_release_is_taken_in_one_step_and_the_one_before_can_be_had_back(image, house, tmp_path):
    before = image.current
    other = changed(house, tmp_path / "other", {"hushgrid/deploy/more.txt": "more"})
    assert image.install(other, "node").returncode == 0
    after = image.current
    assert after != before
    assert len([*(image.opt / "releases").iterdir()]) <= 2
    assert image.install(other, "back").returncode == 0
    assert image.current == before
    assert image.install(other, "back").returncode == 0
    assert image.current == after


def test_a_wheelhouse_of_another_machine_is_refused(image, house, tmp_path):
    other = changed(house, tmp_path / "other", {})
    (other / "machine").write_text("aarch64 3.13\n")
    done = image.install(other, "node")
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: found a wheelhouse for aarch64 3.13, expected ")


@pytest.mark.parametrize(
    ("members", "connections", "files"), [("3", 14, 1024), ("200", 408, 1024), ("1000", 2008, 2136)]
)
def test_the_broker_takes_connections_and_files_for_its_fleet(image, house, members, connections, files):
    assert image.install(house, "broker", members).returncode == 0
    text = (image.root / "etc/mosquitto/mosquitto.conf").read_text()
    assert f"\nmax_connections {connections}\n" in text
    assert f"LimitNOFILE={files}\n" in (image.root / "etc/systemd/system/mosquitto.service.d/hushgrid.conf").read_text()
    assert image.install(house, "broker", "many").returncode == 2


def test_what_is_removed_leaves_configuration_ledgers_and_marks(image, house):
    assert image.install(house, "uninstall").returncode == 0
    assert not image.opt.exists()
    assert [*image.root.glob("etc/systemd/system/hushgrid-*")] == []
    assert (image.nodes / "n0.yaml").exists()
    assert (image.root / "var/lib/hushgrid/n0/n0.ledger").read_text() == "kept"
    assert image.install(house, "uninstall").returncode == 0
    assert image.install(house, "node").returncode == 0  # and it comes back to what was kept
    image.says("check", str(image.nodes / "n0.yaml"))
