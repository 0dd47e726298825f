"""`hushgrid watch` as a process, and what its pages say."""

import http.client
import re
import time
from contextlib import closing

from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon


def watch(tmp_path, stack, *options, http_at="127.0.0.1:0"):
    """The program, and where it answers."""
    place = () if http_at is None else ("--http", http_at)
    daemon = Daemon(tmp_path / "watch.log", [*HUSHGRID, "watch", *place, *options], {"X": "a process of its own"})
    stack.callback(daemon.kill)
    daemon.wait_for("watch: http")
    return daemon, int(re.search(r"watch: https?://\S+:(\d+)/", daemon.said)[1])


def read(port, path):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def until(port, path, is_it):
    """What a page says, once it says so, and how long that took."""
    began = time.monotonic()
    while not is_it(page := read(port, path)):
        assert time.monotonic() - began < PATIENCE, page
        time.sleep(0.05)
    return page, time.monotonic() - began
