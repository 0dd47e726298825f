"""Everything goes wrong with real daemons on a real broker; the simulation's checker judges them.

    HUSHGRID_STORM_S=60 HUSHGRID_STORM_SEED=7 pytest -s -m long tests/system/storm -k nats

`-s` shows the plan, and at the end the tables of docs/reliability.md. HUSHGRID_STORM_OUT names a folder for histories
and counts.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from hushgrid.lab.simulate.checker import check
from hushgrid.lab.simulate.front import write_history
from tests.support.scenarios.simulated_lives import SCENARIOS
from tests.support.storm.fleet import Done, Storm
from tests.support.storm.plan import drawn, words
from tests.support.storm.tables import counts, tables
from tests.support.transport.fleet_brokers import need

SECONDS = float(os.environ.get("HUSHGRID_STORM_S", "600"))  #: on each broker, shared by the patterns
SEED = int(os.environ.get("HUSHGRID_STORM_SEED", "1"))


def storm(place: Path, kind: str, pattern: str, seconds: float, mistake: str = "") -> Done:
    need(kind)
    with ExitStack() as stack:
        storm = Storm(place, kind, pattern, stack, mistake)
        faults = drawn(f"{SEED} {kind} {pattern}", storm.fleet.nodes, seconds)
        print(f"\n{kind}, {pattern}, seed {SEED}: {words(faults)}", flush=True)
        return storm.run(faults, seconds)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mosquitto", "nats", "rabbitmq"])
def test_no_promise_is_broken_in_ten_minutes(tmp_path: Path, kind: str) -> None:
    out = Path(os.environ.get("HUSHGRID_STORM_OUT", tmp_path))
    out.mkdir(exist_ok=True)
    storms = []
    for pattern in SCENARIOS:
        done = storm(tmp_path / pattern, kind, pattern, SECONDS / len(SCENARIOS))
        storms.append(counts(kind, done))
        (out / f"{kind}.json").write_bytes(msgspec.json.encode(storms))
        write_history(path := out / f"{kind}-{pattern}.history", done.history)
        assert check(done.history) == [], f"python lab/simulate/checker.py {path}"
    print(tables(storms), flush=True)


@pytest.mark.long
@pytest.mark.mosquitto
@pytest.mark.parametrize("mistake", ["state_not_stored", "nothing_but_spends_stored"])
def test_a_driver_that_forgets_its_run_is_found_within_a_minute(tmp_path: Path, mistake: str) -> None:
    """Who is killed in a run comes back into it, and says where it stands."""
    findings = check(storm(tmp_path / "star", "mosquitto", "star", 60.0, mistake).history)
    assert "resumed" in {finding.promise for finding in findings}


@pytest.mark.mosquitto
def test_what_daemons_have_done_is_judged(tmp_path: Path) -> None:
    """A short storm; then its history without one of the answers that a ledger has committed."""
    history = storm(tmp_path / "token", "mosquitto", "token", 5.0).history
    assert check(history) == []
    spends = [number for number, e in enumerate(history) if e["e"] == "spent"]
    lacking = spends[len(spends) // 2]
    promises = {finding.promise for finding in check(history[:lacking] + history[lacking + 1 :])}
    assert {"heard", "paid"} <= promises
