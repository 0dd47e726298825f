"""No load and no secret of a private run over zones stands in a file, on the wire or in a log."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import hushgrid.grid_cases
from hushgrid.broker.simulation import processes, run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.runs import background_run
from tests.support.runs.private_traces import MODES, found_in, private, traces
from tests.support.scenarios.record_scenarios import scenario

# --- no byte of it: run directory, wire, logs ---


def odd_case(path):
    """case14 with loads that no chance repeats: many digits each."""
    source = Path(hushgrid.grid_cases.__file__).with_name("pglib_opf_case14_ieee.m").read_text()
    head, table, rest = re.split(r"(?<=mpc\.bus = \[\n)(.*?)(?=\];)", source, maxsplit=1, flags=re.DOTALL)
    dice, lines = np.random.default_rng(3), []
    for line in table.splitlines():
        cells = line.split()
        cells[2:4] = [repr(float(cell) + dice.uniform(0.1, 1.0)) for cell in cells[2:4]]
        lines.append("\t" + "\t ".join(cells))
    path.write_text(head + "\n".join(lines) + "\n" + rest)
    return str(path)


@pytest.mark.parametrize("mode", MODES)
def test_no_load_and_no_secret_stands_in_a_file_on_the_wire_or_in_a_log(tmp_path, monkeypatch, embedded, mode):
    case = odd_case(tmp_path / "odd.m")
    logs, end = tmp_path / "logs", processes.Fleet.end

    def keep(children, *seconds):
        end(children, *seconds)
        logs.mkdir()
        for log in children.directory.glob("*.log"):
            shutil.copy2(log, logs)

    monkeypatch.setattr(processes.Fleet, "end", keep)
    raw = private(mode, rounds=200, **{"problem.case": case, "run.record": "transcript"})
    background = background_run.Background(
        raw, transport="mqtt", broker=embedded.url, state=tmp_path / "state", out=tmp_path / "out"
    )
    background.child("z1").kill()  # its log goes on over the restart
    name = background.when(lambda: [t for t in background_run.retained(embedded.url, 0.2) if t.endswith("z2")])[0]
    with_garbage(embedded.url, name.replace("state/z2", "edge/coordinator/z2"))
    result = background.wait(600)
    assert result.privacy["upheld"] is True

    odd = load(case)
    d = loads(odd, tuple(odd.buses.numbers.tolist()))
    needles = traces(d[d != 0], odd.base_mva)
    assert found_in(tmp_path / "out", needles) == []
    assert found_in(logs, needles) == []
    assert "joined" in (logs / "z1.log").read_text()
    assert "dropped" in (logs / "z2.log").read_text()
    # The search can find: what is private does hold them.
    (tmp_path / "device").mkdir()
    np.savez(tmp_path / "device/loads.npz", d=d)
    shutil.copy2(tmp_path / "odd.m", tmp_path / "device")
    assert set(found_in(tmp_path / "device", needles)) >= {"loads.npz:d.npy", "odd.m"}


def with_garbage(url, topic):
    link = MqttLink(url, "stranger", persistent=False)
    link.connect(5.0)
    link.publish(topic, b"\xc1 not a message")
    link.close()


# --- No row and no secret of a private run over rows stands in a file, on the wire or in a log ---

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
