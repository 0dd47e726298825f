"""`hushgrid plan` as a program: its processes find the same as one, plugged algorithms too, and end when it is
interrupted.
"""

import json
import os
import signal
import subprocess

import pytest
import yaml

from tests.support.daemons.deployed_fleet import HUSHGRID
from tests.support.scenarios.record_scenarios import scenario
from tests.support.scenarios.toy_plugin import TOY

SMALL = {
    "problem.data": {"csv": "none.csv", "rows": 120, "features": 2, "normalize": "unit-rows"},
    "algorithm": {"name": "toy", "rounds": 4, "step_size": 1.0},
    "privacy.epsilon": 5.0,
}


def test_two_processes_find_what_one_finds_of_a_plugged_algorithm(tmp_path):
    (tmp_path / "toys.py").write_text(TOY)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario(SMALL)))
    said = []
    for workers in ("1", "2"):
        command = [
            *HUSHGRID,
            "plan",
            "s.yaml",
            "--json",
            "--quiet",
            "--seeds",
            "3",
            "--plugin",
            "toys",
            "--workers",
            workers,
        ]
        ended = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        said.append(json.loads(ended.stdout))
    assert said[0] == said[1]
    assert said[0]["chosen"]["step"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("told", [os.kill, os.killpg])
def test_an_interrupt_ends_it_in_one_line(tmp_path, number, told):
    """Also where its parent ignores the signal, as a shell's background jobs do."""
    (tmp_path / "s.yaml").write_text(
        yaml.safe_dump(scenario(SMALL | {"algorithm.name": "dgd", "problem.data.rows": 40_000}))
    )
    asked = subprocess.Popen(
        [*HUSHGRID, "plan", "s.yaml", "--workers", "2", "--seeds", "1000"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert asked.stderr is not None
    assert "laplace is looked through" in asked.stderr.readline()
    told(asked.pid, number)  # a terminal asks the whole group, and a service's end its control group
    out, error = asked.communicate(timeout=30)
    assert (asked.returncode, out) == (4, "")
    assert error.splitlines()[-1] == f"hushgrid: interrupted by {number.name}"
    assert "Traceback" not in error
