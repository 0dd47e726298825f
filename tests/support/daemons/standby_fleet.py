"""Three zones that answer anew in every round, their coordinator, and another machine with its files."""

import shutil
import signal
from contextlib import contextmanager

from tests.support.daemons.deployed_fleet import ZONES
from tests.support.daemons.enrolled_fleet import Enrolled

ROUNDS = 300  #: a run of some seconds, in which there is time to be killed


def standby_fleet(directory, program, stack):
    """The fleet, with the certificate of a standby."""
    made = Enrolled(directory, program, stack)
    made.enrol("standby", *ZONES)
    made.operator("acl", made.path, "--write")
    made.broker.send_signal(1)
    file = made.path / "coordinator.yaml"
    file.write_text(file.read_text() + "standby: 8s\n")
    return made


def trusting(fleet):
    """Every file says that the broker is not trusted, and by whose certificates messages count."""
    for file in (fleet.path / "coordinator.yaml", *(fleet.directory / "nodes").glob("*.yaml")):
        file.write_text(file.read_text() + f"trust: {{ca: {fleet.certs / 'ca.crt'}}}\n")


def objective(fleet):
    """Linearised ADMM: every round is paid for."""
    text = (fleet.path / "scenario.yaml").read_text()
    text = text.replace("name: consensus-admm", "name: ladmm").replace("rounds: 200 ", f"rounds: {ROUNDS} ")
    (fleet.path / "scenario.yaml").write_text(text.replace("privacy:", "privacy:\n  mode: objective"))
    for z in ZONES:
        fleet.edit(f"nodes/{z}.yaml", "algorithms: [consensus-admm]", "algorithms: [ladmm]")


@contextmanager
def stopped(node):
    """A device does not run meanwhile, so that its run waits: however fast rounds are, it is not over before."""
    node.child.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.child.send_signal(signal.SIGCONT)


def second(fleet, *options):
    """Another machine with the coordinator's files, and a state of its own."""
    place = fleet.directory / "second"
    if not place.exists():
        shutil.copytree(fleet.path, place)
        file = place / "coordinator.yaml"
        file.write_text(file.read_text().replace("hushgrid/coordinator", "hushgrid/second"))
    return fleet.start("coordinator", str(place / "coordinator.yaml"), "", *options)
