"""Ten minutes in which everything goes wrong with real daemons on a real broker; the simulation's checker judges them.

    HUSHGRID_STORM_S=60 HUSHGRID_STORM_SEED=7 pytest -s -m long tests/system/storm -k nats

`-s` shows the plan, and at the end the lines of the tables of docs/reliability.md.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from hushgrid.lab.simulate.checker import check
from hushgrid.lab.simulate.front import write_history
from tests.support.scenarios.simulated_lives import SCENARIOS
from tests.support.storm.fleet import Done, Storm
from tests.support.storm.plan import drawn, words
from tests.support.storm.tables import tables
from tests.support.transport.fleet_brokers import need

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("HUSHGRID_STORM_S", "600"))  #: of each broker, shared by the patterns
SEED = int(os.environ.get("HUSHGRID_STORM_SEED", "1"))


@pytest.mark.parametrize("kind", ["mosquitto", "nats", "rabbitmq"])
def test_no_promise_is_broken_in_a_storm(tmp_path: Path, kind: str) -> None:
    need(kind)
    storms: list[Done] = []
    for pattern in SCENARIOS:
        with ExitStack() as stack:
            storm = Storm(tmp_path / pattern, kind, pattern, stack)
            seconds = SECONDS / len(SCENARIOS)
            faults = drawn(f"{SEED} {kind} {pattern}", storm.fleet.nodes, seconds)
            print(f"\n{kind}, {pattern}, seed {SEED}: {words(faults)}", flush=True)
            done = storm.run(faults, seconds)
        storms.append(done)
        print(tables(kind, [done]), flush=True)
        write_history(path := tmp_path / f"{pattern}.history", done.history)
        assert check(done.history) == [], f"python -m hushgrid.lab.simulate.checker {path}"
    print(tables(kind, storms), flush=True)
