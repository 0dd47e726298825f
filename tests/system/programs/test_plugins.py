"""An algorithm in a file of one's own: it runs where the owner lists its module, and is refused in one line where
not.
"""

import os
import subprocess
from contextlib import ExitStack

import pytest
import yaml

from hushgrid.broker.servers import choose as brokers
from tests.support.daemons.deployed_fleet import HUSHGRID
from tests.support.daemons.small_daemons import BUDGET, CLIP, SENSORS, Centre, on_rows, outcome_file, ring
from tests.support.scenarios import record_scenarios
from tests.support.scenarios.toy_plugin import TOY

UNKNOWN = "algorithm.name: found 'toy', expected one of "


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the plugin, where Python finds it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "toy_plugin.py").write_text(TOY)
    (folder / "no_plugin.py").write_text("answer = 42\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return path


def hushgrid(*arguments):
    return subprocess.run([*HUSHGRID, *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("transport", ["memory", "mqtt"])
def test_a_listed_plugin_runs_and_leaves_a_report(outside, tmp_path, transport):
    section = {"algorithm": {"name": "toy", "rounds": 4, "step_size": 0.5}}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(record_scenarios.scenario(section)))
    run = ("run", tmp_path / "toy.yaml", "--out", tmp_path / "out", "--quiet", "--transport", transport)
    broker = ("--broker", "embedded") if transport == "mqtt" else ()
    done = hushgrid(*run, *broker, "--plugin", "toy_plugin")
    assert done.returncode == 0, done.stderr
    assert "half a step" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ([], UNKNOWN),
        (["--plugin", "no_plugin"], "--plugin: plugins: no_plugin: found no algorithm, expected a new one"),
        (
            ["--plugin", "gone_plugin"],
            "--plugin: plugins: gone_plugin: No module named 'gone_plugin', expected a module",
        ),
    ],
)
def test_what_is_not_listed_or_is_no_plugin_is_refused_in_one_line(outside, tmp_path, plugins, said):
    section = {"algorithm": {"name": "toy", "rounds": 4, "step_size": 0.5}}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(record_scenarios.scenario(section)))
    done = hushgrid("run", tmp_path / "toy.yaml", "--out", tmp_path / "out", "--quiet", *plugins)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_device_runs_it_only_if_its_owner_lists_it(outside, tmp_path):
    with brokers.start("embedded", tmp_path / "broker") as broker, ExitStack() as stack:
        targets = ring(tmp_path, broker.url, stack)
        centre = Centre(tmp_path / "centre", broker.url, stack, plugins=["toy_plugin"])
        raw = on_rows("toy", 4, 50.0, step_size=0.5)
        for name, target in targets.items():
            target.config["allow"] = {}
            target.config |= {"budget": {"epsilon": BUDGET, "adjacency": CLIP}}
            target.config["plugins"] = ["toy_plugin"] if name != SENSORS[0] else []
            target.write()
            target.start(PYTHONPATH=outside)
        refused = centre.command(raw, PYTHONPATH=outside)
        assert refused.code() != 0
        assert "toy" in refused.said
        assert not outcome_file(targets[SENSORS[0]]).exists()
        first = targets[SENSORS[0]]
        first.config["plugins"] = ["toy_plugin"]
        first.write()
        first.daemon.end()
        first.start(PYTHONPATH=outside)
        done = centre.command(raw, PYTHONPATH=outside)
        assert done.code() == 0, done.said
        for target in targets.values():
            target.daemon.wait_for("joined run")
            assert outcome_file(target).exists()
