"""The rows of `hushgrid status` about the example fleet of deploy/."""

import json
import subprocess
import time

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE


def status(fleet, *options):
    place = ("--broker", fleet.url, "--fleet", "demo")
    return subprocess.run([*HUSHGRID, "status", *place, *options], capture_output=True, text=True, timeout=PATIENCE)


def nodes(fleet, *options):
    done = status(fleet, "--json", *options)
    assert done.returncode == 0, done.stderr
    return {row["node"]: row for row in json.loads(done.stdout)["nodes"]}


def until(fleet, what):
    deadline = time.monotonic() + PATIENCE
    while not what(found := nodes(fleet)):
        assert time.monotonic() < deadline, found
    return found
