"""Coordinator, watch and a device in containers, by the lines of the page. As root, with buildah: each process is in
the image's root, and has the machine's network.
"""

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from urllib.request import urlopen

import pytest
import yaml

from hushgrid.broker.servers.process import free_port
from tests.support.daemons.booted_machine import base
from tests.support.daemons.deployed_fleet import HUSHGRID, ZONES, Daemon
from tests.support.daemons.enrolled_fleet import Enrolled
from tests.support.paths import DEPLOY

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("buildah") is None, reason="missing: root, or buildah"),
]
BUILDAH = ("buildah", "--storage-driver", "vfs")
BASE = "docker.io/library/debian:12-slim"


def buildah(*arguments: object) -> str:
    done = subprocess.run([*BUILDAH, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(directory, house):
    """The build that the Containerfile names, on a Debian that debootstrap has made."""
    if not buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        first = buildah("from", "scratch")
        buildah("add", "--quiet", first, base(directory), "/")
        buildah("commit", "--quiet", first, BASE)
        buildah("rm", first)
    build = ("build", "--isolation", "chroot", "--pull-never", "--quiet")
    buildah(*build, "-t", "hushgrid", "-f", house / "deploy/Containerfile", house)
    return "localhost/hushgrid"


class Contained(Enrolled):
    """A fleet of which some are containers: paths are the same inside."""

    image = ""

    def contained(self, *command: object) -> Daemon:
        name = buildah("from", "--pull-never", self.image)
        self.stack.callback(buildah, "rm", name)
        self.count += 1
        mount = ("--volume", f"{self.path.parent}:{self.path.parent}")
        run = [*BUILDAH, "run", "--isolation", "chroot", *mount, name, "--", "/opt/hushgrid/bin/hushgrid", *command]
        daemon = Daemon(self.directory / f"{self.count}-container.log", [str(part) for part in run], {})
        self.stack.callback(daemon.kill)
        return daemon


@pytest.fixture
def fleet(tmp_path, mosquitto_program, image):
    with ExitStack() as stack:
        made = Contained(tmp_path, mosquitto_program, stack)
        made.image = image
        made.enrol(*ZONES)
        yield made


def test_what_compose_starts_exists():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert list(services) == ["broker", "coordinator", "watch"]
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        assert service["user"]


def test_a_run_of_containers_and_units_is_done_and_watch_shows_it(fleet):
    commands = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    place = {"HUSHGRID_FLEET": str(fleet.path), "HUSHGRID_KEYS": str(fleet.certs)}

    def command(service: str) -> list[str]:
        filled = [re.sub(r"\$\{(\w+):\?\}", lambda m: place[m.group(1)], part) for part in commands[service]["command"]]
        return filled

    port = free_port()
    watch = fleet.contained(*(part.replace(":8080", f":{port}") for part in command("watch")))
    watch.wait_for("watch: http")
    nodes = [fleet.node("z1"), fleet.node("z2")]
    # cvxpy is not in the image: the zone's model is made elsewhere.
    zones = "[[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]"
    made = [*HUSHGRID, "case", "zones", "case14", "--zones", zones, "--export", str(fleet.directory / "nodes")]
    subprocess.run(made, check=True)
    fleet.edit("nodes/z3.yaml", "  zone: [6, 11, 12, 13]", "  zone: [6, 11, 12, 13]\n  model: z3.npz")
    third = fleet.contained("node", fleet.directory / "nodes" / "z3.yaml")
    third.wait_for("ready on")
    coordinator = fleet.contained(*command("coordinator"), "--once")
    assert coordinator.code() == 0, coordinator.said
    for node in (*nodes, third):
        node.wait_for(" done: ")
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'hushgrid_up{fleet="demo",node="z3"} 1' in text
