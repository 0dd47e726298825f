"""install.sh from a wheelhouse, into an image: without a network, updated, not updated to what is broken, removed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hushgrid.node.privacy.ledger_schema import FORMAT
from tests.support.daemons.wheelhouses import changed, names, of_a_later_format

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
    cryptography = {"cryptography", "cffi", "pycparser"}  # keys and masks
    assert {"hushgrid", "numpy", "msgspec", "pyyaml", "paho_mqtt"} | cryptography == lists["rows"]
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


@pytest.mark.long
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
    done = image.install(changed(house, tmp_path / "other", {"hushgrid/cli/owner/check.py": text}), "node")
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


# --- across formats of the ledger ---


OPENS = """
import sys
from pathlib import Path
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend
ledger = Ledger(Path(sys.argv[1]), "n1", Path(sys.argv[2]))
ledger.join(b"r" * 16, b"plan")
for k in range(int(sys.argv[3])):
    answer = Spend(k + 1, "laplace", 0.5, 2.0, 4.0, 2.0**-20, "replace-one-record", "exact")
    ledger.commit(b"r" * 16, spends=[answer])
ledger.close()
"""


@pytest.fixture(scope="module")
def later(house, tmp_path_factory):
    return of_a_later_format(house, tmp_path_factory.mktemp("later") / "house")


@pytest.fixture
def spender(image, house, later):
    """A device with a mark, whose ledger has two spends; a release of a later ledger format is taken, and had back
    after it.
    """
    state, mark = image.root / "var/lib/hushgrid/n1", image.root / "n1.mark"
    (image.nodes / "n1.yaml").write_text(DEVICE.format(state=state).replace("node: n0", f"node: n1\nmark: {mark}"))
    state.mkdir()

    def spends(answers):
        command = [image.opt / "current/bin/python", "-I", "-c", OPENS, state / "n1.ledger", mark, str(answers)]
        subprocess.run(command, check=True)

    spends(2)
    before = image.current
    assert image.install(later, "node").returncode == 0
    yield before, state, mark, spends
    shutil.rmtree(state)
    mark.unlink(missing_ok=True)
    (image.nodes / "n1.yaml").unlink()
    if image.current != before:
        assert image.install(house, "back").returncode == 0


def shown(image, state):
    return json.loads(image.says("ledger", "show", "--json", str(state / "n1.ledger")))


@pytest.mark.long
def test_a_release_that_cannot_read_the_ledger_is_had_back_if_nothing_was_spent_since(image, house, spender):
    before, state, _, spends = spender
    spends(0)  # opened, and so of the newer format
    newer = (state / "n1.ledger").read_bytes()
    assert image.install(house, "back").returncode == 0
    assert image.current == before
    assert shown(image, state)["mark"] == 2
    assert (state / "newer/n1.ledger").read_bytes() == newer
    assert image.says("ledger", "verify", str(image.nodes / "n1.yaml")).startswith("ok: ")


@pytest.mark.long
def test_spends_of_the_newer_format_are_given_up_only_as_their_owner_says_and_then_count(image, house, spender):
    before, state, _, spends = spender
    spends(3)
    newer, release = (state / "n1.ledger").read_bytes(), image.current
    done = image.install(house, "back")
    assert done.returncode == 1
    *_, why, end = done.stderr.splitlines()
    assert why == (
        f"install.sh: {before.removeprefix('releases/')} cannot read {state / 'n1.ledger'}: found format {FORMAT + 1}, "
        f"expected 2 or {FORMAT}; 3 spends since would be forgotten. To count them as spent: install.sh back accept"
    )
    assert end == f"install.sh: {release.removeprefix('releases/')} goes on"
    assert (image.current, (state / "n1.ledger").read_bytes()) == (release, newer)
    assert image.install(house, "back", "accept").returncode == 0
    assert image.current == before
    found = shown(image, state)
    assert (found["mark"], found["totals"][0]["epsilon"], found["totals"][0]["gaps"]) == (5, 2.5, 1)
    assert image.says("ledger", "verify", str(image.nodes / "n1.yaml")).startswith("ok: ")


def test_without_a_mark_that_says_what_was_spent_the_ledger_stays(image, house, spender):
    _, state, mark, spends = spender
    spends(3)
    newer, release = (state / "n1.ledger").read_bytes(), image.current
    mark.unlink()
    done = image.install(house, "back", "accept")
    assert done.returncode == 1
    assert "does not say all that was spent: its ledger stays as it is" in done.stderr
    assert (image.current, (state / "n1.ledger").read_bytes()) == (release, newer)
    assert not mark.exists()
    assert shown(image, state)["mark"] == 5


@pytest.mark.long
def test_a_release_that_cannot_bring_a_ledger_to_its_format_is_not_taken(image, house, tmp_path, spender):
    before, state, *_ = spender
    assert image.install(house, "back").returncode == 0
    defect = "\ndef migrate(db):\n    raise KeyError('a defect')\n"
    other = of_a_later_format(house, tmp_path / "other", schema=defect)
    kept = (state / "n1.ledger").read_bytes()
    done = image.install(other, "node")
    assert done.returncode == 1
    assert "hushgrid: defect: KeyError: 'a defect'" in done.stderr
    assert (image.current, (state / "n1.ledger").read_bytes()) == (before, kept)


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
