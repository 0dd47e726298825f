"""The example ring of deploy/ with rows of each sensor's own, as real processes."""

import numpy as np

from tests.support.daemons.deployed_fleet import Fleet
from tests.support.paths import DEPLOY

SENSORS = ("n0", "n1", "n2", "n3")
ROOT = "hushgrid/1/ring"


def rows(m=200, q=8, seed=0, longest=1.0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, q))
    A *= longest / np.linalg.norm(A, axis=1).max()
    return A, np.where(A @ np.ones(q) + 0.1 * rng.normal(size=m) > 0, 1.0, -1.0)


def keep(fleet, name, shard):
    np.savez(fleet.directory / "nodes" / f"{name}.npz", A=shard[0], b=shard[1])


def to_the_end(fleet):
    """One run of all sensors, which are ready and then done and end by themselves."""
    nodes = [fleet.node(name) for name in SENSORS]
    coordinator = fleet.coordinator("--once")
    assert coordinator.code() == 0, coordinator.said
    for daemon in nodes:
        daemon.wait_for(" done: rounds")
        assert daemon.end() == 0


def models(fleet):
    """What each sensor keeps of the last run."""
    found = {}
    for name in SENSORS:
        with np.load(fleet.state(name) / f"{name}.model.npz", allow_pickle=False) as archive:
            found[name] = dict(archive)
    return found


def ring(directory, url, stack):
    """deploy/ring, with rows."""
    made = Fleet(directory, url, stack, DEPLOY / "ring")
    for i, name in enumerate(SENSORS):
        keep(made, name, rows(seed=i))
    return made
