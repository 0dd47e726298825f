"""The example fleet on a cluster of three servers as `hushgrid fleet init` writes it: NATS and RabbitMQ, with TLS.

    HUSHGRID_INTERVALS=100 HUSHGRID_INTERVALS_S=3600 pytest -s -m long tests/system/deploy/test_cluster_fleet.py

`-s` shows the table of intervals.
"""

import time
from contextlib import ExitStack

import pytest

from hushgrid.broker.watch.nodes import look
from hushgrid.cli.main import main
from hushgrid.node.config.watch import load_watch
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES
from tests.support.daemons.watched import until, watch
from tests.support.transport.clusters import SERVERS
from tests.support.transport.killed_intervals import COUNT, SECONDS, KilledIntervals, summary

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["nats", "rabbitmq"])
def cluster(request, tmp_path_factory):
    with ExitStack() as stack:
        yield KilledIntervals(tmp_path_factory.mktemp(request.param), request.param, stack)


def there(cluster):
    """Who `hushgrid status` shows as connected, by the file that fleet init has written."""
    cluster.directory.write_coordinator(cluster.fleet.directory / "certs")
    seen = look(load_watch(cluster.directory.path / "watch.yaml"))
    return {name for name, node in seen.items() if node.there}


def everybody(cluster):
    """Until all are shown as connected: they have their servers again a moment after those are there."""
    deadline = time.monotonic() + PATIENCE
    while (seen := there(cluster)) != {*ZONES, "coordinator"}:
        assert time.monotonic() < deadline, (seen, cluster.logs())


def test_status_sees_everybody_also_who_is_at_another_server(cluster):
    everybody(cluster)


def test_watch_sees_everybody_whichever_server_it_is_at(cluster, tmp_path, stack):
    """It begins late, and each server dies once: it is at another one then, and so are those who were at that one."""
    cluster.directory.write_coordinator(cluster.fleet.directory / "certs")
    _, port = watch(tmp_path, stack, "--config", str(cluster.directory.path / "watch.yaml"))
    up = [f'hushgrid_up{{fleet="demo",node="{name}"}} 1' for name in ("coordinator", *ZONES)]
    until(port, "/metrics", lambda text: all(line in text for line in up))
    for server in range(SERVERS):
        cluster.cluster.kill(server)
        until(port, "/metrics", lambda text: "hushgrid_broker_up" in text and all(line in text for line in up))
        cluster.cluster.start(server)
        cluster.cluster.wait()
        until(port, "/metrics", lambda text: all(line in text for line in up))


def test_an_interval_in_which_a_server_dies_is_answered_with_the_same_bits_or_said_to_be_missed(cluster):
    kind = cluster.directory.kind
    done = cluster.all(COUNT, SECONDS, lambda line: print(line, flush=True))
    print(summary(kind, done), flush=True)
    assert [one for one in done if one.outcome == "answer" and not one.same] == []
    assert [one for one in done if one.outcome != "answer" and not one.cause] == []
    assert [one for one in done if one.outcome == "answer"] != []
    assert {z: cluster.fleet.spends(z) for z in ZONES} == cluster.spends
    everybody(cluster)
    assert main(["status", "--config", str(cluster.directory.path / "watch.yaml")]) == 0
