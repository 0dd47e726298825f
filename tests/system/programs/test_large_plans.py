"""The largest plans take little memory and end."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.paths import ROOT

# --- crafted ones ---


def test_large_plans_take_little_memory_and_end():
    """The largest walks, networks and lists a message of PLAN_LIMIT holds, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.scenarios.largest_plans"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.stderr == ""
    *answers, peak = map(json.loads, ran.stdout.splitlines())
    assert peak["MB"] < 200
    assert {a["plan"]: a["said"] for a in answers} == {
        "a walk between a hub and a leaf": None,
        "a star": None,
        "a complete graph": None,
        "an edge a thousand times": "plan: Expected `array` of length <= 262144 - at `$.problem.edges`, expected a plan of format 1",
        "a cycle through ten thousand": None,
        "a cycle too long": "plan: Expected `array` of length <= 20000 - at `$.problem.route`, expected a plan of format 1",
        "five thousand parts": "network: found 5000 parts, [0, 1] one of them, expected a connected graph",
        "private minimisers of 10^9 rows each": None,
        "twenty thousand zones": "plan: Expected `object` of length <= 10000 - at `$.problem.zones`, expected a plan of format 1",
        "a zone of two million buses": "plan: Expected `array` of length <= 100000 - at `$.problem.zones[...]`, expected a plan of format 1",
    }  # fmt: skip
