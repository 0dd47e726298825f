"""What a coordinator that runs by a schedule has written about its intervals."""

import csv
import time

from tests.support.daemons.deployed_fleet import PATIENCE


def intervals(fleet):
    path = fleet.state("coordinator") / "intervals.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def until(fleet, happened):
    """The intervals so far, once `happened` of them."""
    deadline = time.monotonic() + PATIENCE
    while not (rows := intervals(fleet)) or not happened(rows):
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    return rows
