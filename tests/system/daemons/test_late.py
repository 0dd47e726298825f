"""A device that is away while its run is called done, and comes back only as the next coordinator waits for it."""

import re
import signal
from contextlib import closing

import numpy as np
import pytest

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.node.privacy.ledger import Ledger
from tests.support.daemons.small_daemons import Centre, on_rows, on_zones, outcome, outcome_file, pair, ring

RUNS = {"star": on_zones("objective", 8), "neighbours": on_rows("dgd", 8, 50.0, step_size=1.0)}


@pytest.mark.mosquitto
@pytest.mark.parametrize("broker", ["remembers", "has forgotten"])
@pytest.mark.parametrize("pattern", RUNS)
def test_it_writes_the_outcome_of_that_run_before_it_joins_the_next(
    pattern, broker, tmp_path, mosquitto, stack, monkeypatch
):
    raw = RUNS[pattern]
    targets = (pair if pattern == "star" else ring)(tmp_path, mosquitto.url, stack)
    centre = Centre(tmp_path / "centre", mosquitto.url, stack)
    for target in targets.values():
        target.start()
    victim = targets[max(targets)]
    finish = Coordinator._finish

    def dies(self, error):
        if not self.ending:
            victim.daemon.kill()
        return finish(self, error)

    with monkeypatch.context() as held:
        held.setattr(Coordinator, "_finish", dies)
        first = centre.here(raw, lambda _: None)
    assert first.error is None
    assert victim.daemon.child.returncode == -signal.SIGKILL
    assert not outcome_file(victim).exists()
    if broker == "has forgotten":
        mosquitto.kill()
        mosquitto.start(mosquitto.port)
    coordinator = centre.command(raw)
    coordinator.wait_for(" waits for ")
    back = victim.start()
    assert coordinator.code() == 0, coordinator.said
    done = re.findall(r"run (\w{8}) done", back.said)
    assert done[0] == first.run.hex()[:8], back.said
    assert len(done) == 2
    assert back.end() == 0
    with closing(Ledger(victim.ledger, victim.name, victim.mark)) as ledger:
        assert [run.status for run in ledger.runs.all()] == ["done", "done"]
        assert ledger.verify() == []
    found = outcome(victim)
    assert np.any(found["z"] if "z" in found else found["x"])
