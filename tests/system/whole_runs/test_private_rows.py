"""No row and no secret of a private run over rows stands in a file, on the wire or in a log."""

import shutil

import numpy as np

from hushgrid.broker.simulation import processes, run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.node.config.scenario import scenario_from
from tests.support.runs.private_traces import found_in, traces
from tests.support.scenarios.record_scenarios import scenario

# --- no byte of it: run directory, wire, logs ---


def test_no_row_and_no_secret_stands_in_a_file_on_the_wire_or_in_a_log(tmp_path, monkeypatch, embedded):
    logs, end = tmp_path / "logs", processes.Fleet.end

    def keep(children, *seconds):
        end(children, *seconds)
        logs.mkdir()
        for log in children.directory.glob("*.log"):
            shutil.copy2(log, logs)

    monkeypatch.setattr(processes.Fleet, "end", keep)
    raw = scenario({"run.record": "transcript"})
    found = run(raw, transport="mqtt", broker=embedded.url, state=tmp_path / "state", out=tmp_path / "out")
    assert found.privacy["upheld"] is True
    values = np.concatenate([shard.A.ravel() for shard in RowSetup(scenario_from(raw)).shards])
    needles = traces(values, 1.0)
    for left in ("out", "logs", "state"):
        assert found_in(tmp_path / left, needles) == []
    assert "joined" in "".join(log.read_text() for log in logs.iterdir())
    # The search can find: what is private does hold them.
    (tmp_path / "device").mkdir()
    np.savez(tmp_path / "device/n0.npz", A=values)
    assert found_in(tmp_path / "device", needles) == ["n0.npz", "n0.npz:A.npy"]
