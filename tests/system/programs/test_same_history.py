"""The same seed gives the same history, byte for byte."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hushgrid.lab.simulate.manner import USUAL, Manner
from hushgrid.lab.simulate.patterns import SCENARIOS, made
from hushgrid.lab.simulate.search import kind_of, life_of, live, quiet

ROOT = Path(__file__).parents[3]
STORM = 2  #: the seed of a life in which everything goes wrong
KINDS = {"star": USUAL, "token": Manner(room=2.5, source=True, fed=True)}


def test_that_seed_is_one_of_a_storm():
    assert kind_of(STORM) == "storm"


def digests() -> dict[str, str]:
    """Of the history of one life of each kind: a storm, and one with a source."""
    histories = {}
    for kind, manner in KINDS.items():
        fleet = made(kind)
        life = msgspec.structs.replace(life_of(SCENARIOS[kind], fleet, STORM, intervals=6), manner=manner)
        simulation, _ = live(fleet, life, quiet(fleet, STORM, manner))
        lines = "".join(json.dumps(event, sort_keys=True) + "\n" for event in simulation.world.history)
        histories[kind] = hashlib.sha256(lines.encode()).hexdigest()
    return histories


def elsewhere(python: str, **environment: str) -> dict[str, str]:
    command = (python, "-c", "import json; from test_same_history import digests; print(json.dumps(digests()))")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests/system/programs")))
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths} | environment, capture_output=True, check=True
    )
    histories: dict[str, str] = json.loads(done.stdout)
    return histories


def test_a_second_life_of_one_process_has_the_same_history():
    assert digests() == digests()


def test_processes_with_other_hash_seeds_and_time_zones_have_the_same_history():
    first = elsewhere(sys.executable, PYTHONHASHSEED="1", TZ="UTC")
    assert first == elsewhere(sys.executable, PYTHONHASHSEED="2", TZ="Asia/Tokyo")


@pytest.mark.long
def test_another_python_has_the_same_history():
    """HUSHGRID_OTHER_PYTHON: an interpreter of another version, with the packages that the simulation needs."""
    other = os.environ.get("HUSHGRID_OTHER_PYTHON")
    if other is None:
        pytest.skip("HUSHGRID_OTHER_PYTHON names no interpreter of another version")
    assert elsewhere(other) == elsewhere(sys.executable)
