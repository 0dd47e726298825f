"""The study of federated learning plays the machines of a run, and its table says what was played."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.cli.main import main
from hushgrid.lab.studies.papers import federated
from hushgrid.lab.studies.papers.federated import (
    SLACK,
    TIGHT,
    FederatedTask,
    Images,
    measured,
    played,
    row,
    scenario,
    tasks,
)
from hushgrid.node.config.scenario import scenario_from
from tests.support.scenarios.small_images import as_femnist, as_mnist, small_images


def task(tmp_path, epsilon=4.0, **keys):
    """A small one: three nodes with ten rows of two features."""
    return FederatedTask(**{
        "images": small_images(tmp_path), "epsilon": epsilon, "rounds": 4, "local_updates": 2, "box": SLACK,
        "mode": "objective", "seeds": (5, 6),
    } | keys)  # fmt: skip


@pytest.mark.parametrize("keys", [{}, {"mode": "output", "box": TIGHT}, {"name": "fedavg"}], ids=str)
def test_a_seed_played_has_the_bits_of_the_run(keys, tmp_path):
    of = task(tmp_path, **keys)
    raw = scenario(of, 6) | {"run": {"record": "trajectory"}}
    found = run(raw)
    for t, models in enumerate(played(RowSetup(scenario_from(raw)), 6)):
        for i, model in enumerate(models):
            assert np.array_equal(model, found.trajectory[f"z_n{i}"][t])
    assert measured(of).error[1] == found.test_error


def test_a_row_says_the_setting_and_one_run_is_enough_without_noise(tmp_path):
    line = measured(task(tmp_path, epsilon=float("inf")))
    assert line.error.shape == (1,)
    said = dict(zip(federated.COLUMNS, row(line), strict=True))
    assert (said["epsilon"], said["noise"], said["answers"]) == ("none", "none", 8)
    assert said["largest |x_k| over the box"] <= 1


def test_every_setting_is_a_scenario_that_can_run():
    for of in tasks(Images(), federated.EPSILONS, (0,)):
        scenario_from(scenario(of, 0))


# --- images by path ---


@pytest.mark.parametrize(("files", "nodes", "pool"), [(as_mnist, 3, 2), (as_femnist, 4, 1)], ids=["MNIST", "FEMNIST"])
def test_images_are_read_as_their_collections_lay_them_out(files, nodes, pool, tmp_path):
    train, test = files(tmp_path)
    images = Images(str(train), str(test), 3, nodes, pool)
    setup = RowSetup(scenario_from(scenario(task(tmp_path, images=images), 0)))
    assert len(setup.shards) == nodes
    assert {s.A.shape[1] for s in setup.shards} == {16 // pool**2}
    assert np.allclose(np.linalg.norm(setup.shards[0].A, axis=1), 1.0)
    assert setup.tests is not None


@pytest.mark.runs
@pytest.mark.parametrize("files", [as_mnist, as_femnist], ids=["MNIST", "FEMNIST"])
def test_the_command_makes_the_figures_of_images_by_path(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(federated, "on_two", lambda work, tasks, name: [work(task) for task in tasks])
    train, test = files(tmp_path)
    keys = {
        "images.train": train,
        "images.test": test,
        "images.classes": 3,
        "images.nodes": 3,
        "answers": 2,
        "seeds": 1,
    }
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    assert main(["study", "federated", *sets]) == 0
    out = capsys.readouterr().out
    assert "## Testing error" in out
    assert "## Figure 7" in out
    assert "| 1 | ladmm | gate | 10 | 2 | 1 | 2 |" in out


@pytest.mark.parametrize(
    ("name", "sets", "said"),
    [
        (
            "federated",
            ["images.train=a.csv"],
            "study: images: found one of train and test, expected both or none",
        ),
        ("federated", ["answers=none"], "study: answers: found 'none', expected int"),
        ("federated", ["pool=2"], "study: pool: unknown key"),
        ("accuracy", ["answers=5"], "study: found --set answers=5, expected none (accuracy has no keys)"),
    ],
)
def test_a_key_that_a_study_has_not_is_refused_in_one_line(name, sets, said, capsys):
    assert main(["study", name, *(part for each in sets for part in ("--set", each))]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"hushgrid: {said}")
    assert error.count("\n") == 1
