"""The coordinator and a server of three die together in the rounds of a run: the standby goes on with it at another
server, and nothing is paid twice.
"""

import re
import shutil
from contextlib import ExitStack

import pytest

from hushgrid.broker.enrolment.directory import CLUSTER_SILENT_S
from tests.support.daemons.deployed_fleet import ZONES, Fleet
from tests.support.transport.bridged import begun, moved
from tests.support.transport.clusters import SERVERS, of_fleet

pytestmark = pytest.mark.long
ROUNDS = 300
#: Who dies first.
ORDERS = ("coordinator", "server")


class Seats:
    """Three zones on a cluster, and two machines with the files of their coordinator."""

    def __init__(self, directory, kind, stack):
        brokers, self.cluster = of_fleet(directory / "F", kind, "demo", stack, "standby")
        self.fleet = fleet = Fleet(directory / "deploy", self.cluster.url, stack)
        moved(fleet, brokers, ZONES, "standby")
        fleet.gradients(ROUNDS)
        for z in ZONES:
            fleet.edit(f"nodes/{z}.yaml", "  epsilon: 20.0", "  epsilon: 2000.0")
        first = fleet.directory / "coordinator.yaml"
        text = re.sub("^silent_s: .*$", f"silent_s: {CLUSTER_SILENT_S}", first.read_text(), flags=re.M)
        first.write_text(text + "standby: 8s\n")
        second = fleet.directory / "second.yaml"
        shutil.copyfile(first, second)
        second.write_text(second.read_text().replace("hushgrid/coordinator", "hushgrid/second"))
        self.runs = 0

    def start(self, file, *options):
        return self.fleet.start("coordinator", file, "", *options)

    def spends(self):
        return {z: len(self.fleet.spends(z)) for z in ZONES}


@pytest.fixture(scope="module", params=["nats", "rabbitmq"])
def seats(request, tmp_path_factory):
    with ExitStack() as stack:
        yield Seats(tmp_path_factory.mktemp(request.param), request.param, stack)


@pytest.mark.parametrize("server", range(SERVERS))
@pytest.mark.parametrize("order", ORDERS)
def test_the_standby_takes_over_at_another_server_and_nothing_is_paid_twice(seats, order, server):
    nodes = begun(seats.fleet, ZONES)
    acting = seats.start("coordinator.yaml")
    waiting = seats.start("second.yaml", "--standby")
    waiting.wait_for("the coordinator is there")
    acting.wait_for(f"round {ROUNDS // 5} of")
    dies = {"coordinator": acting.kill, "server": lambda: seats.cluster.kill(server)}
    for who in sorted(dies, key=lambda one: one != order):
        dies[who]()
    waiting.wait_for("goes on with run")
    for node in nodes:
        node.wait_for(" done: ")
    seats.runs += 1
    assert seats.spends() == dict.fromkeys(ZONES, ROUNDS * seats.runs)
    for daemon in (waiting, *nodes):
        assert daemon.end() == 0
    seats.cluster.start(server)
    seats.cluster.wait()
