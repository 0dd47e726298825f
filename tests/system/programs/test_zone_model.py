"""Zone models written by several processes at once."""

import subprocess
import sys

import pytest

from hushgrid.grid_cases.zone.build import build, ensure_model
from tests.support.scenarios.parted_cases import CASE14, ZONES14, same


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zones"


def test_a_small_process_gets_its_model_without_ever_importing_cvxpy(empty_cache):
    program = (
        "import sys; from hushgrid.grid_cases.zone.build import ensure_model\n"
        f"m = ensure_model('case14', 'z3', {ZONES14[2]}); print(m.n, 'cvxpy' in sys.modules, 'numba' in sys.modules)"
    )
    for _ in range(2):  # built by a process of its own, then read
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["51", "False", "False"]
    assert len(list(empty_cache.iterdir())) == 1
    assert same(ensure_model("case14", "z3", ZONES14[2]), build(CASE14, "z3", ZONES14[2]))
