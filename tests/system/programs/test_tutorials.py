"""docs/tutorials/: the example of each page is complete, at most 60 lines long, and does what the page says."""

import json
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from math import inf
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.setup import prepare
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.event_loop import link_for, serve_all
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.transport import link, schemes
from hushgrid.node.wire import COORDINATOR
from tests.support.paths import ROOT

#: Extends the packages of sys.argv[1], JSON, by folders, as if the files there stood among theirs; runs the program.
PROGRAM = """
import json, sys
from importlib import import_module
for package, folder in json.loads(sys.argv[1]).items():
    import_module(package).__path__.append(folder)
from hushgrid.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs/tutorials" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def files(page: str) -> dict[str, str]:
    """The files of a page, by their names: a line "`FILE`, complete:" before each."""
    text = (ROOT / "docs/tutorials" / page).read_text(encoding="utf-8")
    return dict(re.findall(r"^`([\w/]+\.py)`, complete:\n\n```python\n(.*?)^```$", text, flags=re.M | re.S))


def hushgrid(packages: dict[str, Path], *arguments: str) -> dict:
    """result.json of `hushgrid run` with these folders' files among those of the packages."""
    extended = json.dumps({package: str(folder) for package, folder in packages.items()})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, extended, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "page", ["add-an-algorithm.md", "your-own-package.md", "add-a-problem.md", "add-a-transport.md"]
)
def test_an_example_has_at_most_60_lines(page):
    lines = [line for text in files(page).values() for line in text.splitlines() if line.strip()]
    assert 20 < len(lines) <= 60


def test_the_algorithm_runs_guarded_and_converges_without_noise(tmp_path):
    ((path, text),) = files("add-an-algorithm.md").items()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / Path(path).name).write_text(text)
    (scenario,) = blocks("add-an-algorithm.md", "yaml")
    file, plain = tmp_path / "ring.yaml", tmp_path / "plain.yaml"
    file.write_text(scenario)
    raw = yaml.safe_load(scenario)
    del raw["privacy"]
    raw["algorithm"] |= {"variant": "none", "rounds": 400}
    plain.write_text(yaml.safe_dump(raw))
    packages = {"hushgrid.kernels.algorithms": tmp_path / "code"}
    result = hushgrid(packages, "run", str(file), "--out", str(tmp_path / "a"), "--json")
    assert result["privacy"]["upheld"] is True
    assert result["privacy"]["per_node"]["n0"]["answers"] == result["rounds_done"] - 1
    assert "exact diffusion" in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    exact = hushgrid(packages, "run", str(plain), "--out", str(tmp_path / "b"), "--json")
    assert exact["relative_error"] < 1e-9  # strongly convex: linear convergence, to the referee's own accuracy


@pytest.fixture
def package(tmp_path):
    """The environment in which the package of its page is installed, and the scenario that names its algorithm."""
    page = "your-own-package.md"
    ((name, text),), (project,), (scenario,) = files(page).items(), blocks(page, "toml"), blocks(page, "yaml")
    folder, site = tmp_path / "fading-dgd", tmp_path / "site"
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text(project)
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(site), str(folder)]
    installed = subprocess.run(pip, capture_output=True, text=True, timeout=300)
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "ring.yaml").write_text(scenario)
    return os.environ | {"PYTHONPATH": str(site)}


def test_an_algorithm_of_an_installed_package_is_found_by_its_name(package, tmp_path):
    command = [sys.executable, "-m", "hushgrid", "run", str(tmp_path / "ring.yaml"), "--json", "--out"]
    done = subprocess.run([*command, str(tmp_path / "a")], capture_output=True, text=True, env=package, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["privacy"]["upheld"], result["privacy"]["per_node"]["n0"]["answers"]) == (True, 30)
    over = "{'algorithm.variant': 'none', 'privacy': None, 'algorithm.rounds': 200}"
    program = f"from hushgrid import run; print(run('ring.yaml', set={over}).relative_error)"
    plain = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=package, cwd=tmp_path, timeout=120
    )
    assert plain.returncode == 0, plain.stderr
    assert float(plain.stdout) < 0.05


def test_a_report_of_it_is_built_again_and_a_device_still_knows_no_such_algorithm(package, tmp_path):
    command = [sys.executable, "-m", "hushgrid"]
    for arguments in (
        ["run", str(tmp_path / "ring.yaml"), "--quiet", "--out", str(tmp_path / "a")],
        ["report", str(tmp_path / "a")],
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=package, timeout=120)
        assert done.returncode == 0, done.stderr
    program = (
        "from hushgrid.node.config.scenario import load_scenario; from pathlib import Path; "
        "load_scenario(Path('ring.yaml'))"
    )
    device = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=package, cwd=tmp_path)
    assert "found 'fading-dgd', expected one of" in device.stderr


def test_the_problem_runs_guarded_and_finds_the_median_without_noise(tmp_path):
    (tmp_path / "kinds" / "smooth_median").mkdir(parents=True)
    (tmp_path / "setups").mkdir()
    kind, setup = files("add-a-problem.md").values()
    (tmp_path / "kinds" / "smooth_median" / "kind.py").write_text(kind)
    (tmp_path / "setups" / "smooth_median.py").write_text(setup)
    (scenario,) = blocks("add-a-problem.md", "yaml")
    file, plain = tmp_path / "path.yaml", tmp_path / "plain.yaml"
    file.write_text(scenario)
    raw = yaml.safe_load(scenario)
    del raw["privacy"]
    raw["algorithm"] |= {"variant": "none", "rounds": 400}
    plain.write_text(yaml.safe_dump(raw))
    packages = {
        "hushgrid.node.problems": tmp_path / "kinds",
        "hushgrid.broker.simulation.problems": tmp_path / "setups",
    }
    result = hushgrid(packages, "run", str(file), "--out", str(tmp_path / "a"), "--json")
    assert result["privacy"]["upheld"] is True
    assert result["privacy"]["spent"]["epsilon"] == pytest.approx(raw_epsilon := 300.0, rel=1e-3)
    assert result["privacy"]["spent"]["epsilon"] <= raw_epsilon
    assert (tmp_path / "a" / "report.html").exists()
    hushgrid(packages, "run", str(plain), "--out", str(tmp_path / "b"), "--json")
    (x,) = np.load(tmp_path / "b" / "solution.npz")["x"]
    slope = sum(np.mean(np.tanh(x - np.array(records))) for records in raw["problem"]["records"])
    assert abs(slope) < 1e-9  # the sum of convex f_i has its minimum where the slopes are in balance


def test_the_transport_carries_a_run_with_the_same_bits_as_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "MAKERS", dict(link.MAKERS))
    monkeypatch.setattr(schemes, "MAKERS", link.MAKERS)
    ((path, text),) = files("add-a-transport.md").items()
    (tmp_path / "loop.py").write_text(text)
    spec = spec_from_file_location(Path(path).stem, tmp_path / "loop.py")
    spec.loader.exec_module(module_from_spec(spec))
    raw = yaml.safe_load((ROOT / "scenarios/adult-neighbours.yaml").read_text()) | {"seed": 1}
    raw["algorithm"]["rounds"] = 24
    scenario = scenario_from(raw, "scenario", ROOT / "scenarios")
    expected = run(scenario)

    setup, kept = prepare(scenario), {}
    ledgers = {n: Ledger(tmp_path / f"{n}.ledger", n, durable=False) for n in (*setup.plan.nodes, COORDINATOR)}
    members = [
        Member(
            "demo", setup.device(n), ledgers[n], None, simulated=Simulated(1),
            outcome=lambda found, about, n=n: kept.__setitem__(n, found),
        )
        for n in setup.plan.nodes
    ]  # fmt: skip
    centre = coordinator("demo", setup.plan, "", ledgers[COORDINATOR], wait_s=inf, silent_s=inf)
    pairs = [(endpoint, link_for(endpoint, "loop://demo")) for endpoint in (*members, centre)]
    serve_all(pairs, until=lambda: centre.finished and len(kept) == len(members))
    assert centre.error is None
    for name in setup.plan.nodes:
        np.testing.assert_array_equal(kept[name]["x"], expected.solution[f"x_{name}"])
    for endpoint, one in pairs:
        one.close(clear=endpoint.retained)
        ledgers[endpoint.name].close()
