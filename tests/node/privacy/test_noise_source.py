"""Where a device's random numbers come from: one object draws them all."""

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hushgrid.kernels.privacy.noise import Lattice, simulated
from hushgrid.kernels.privacy.perturbation import spherical
from hushgrid.kernels.randomness import counter_generator
from hushgrid.node.privacy.noise_source import SeededNoise, SystemNoise, noise_source

NODE = Path(__file__).parents[3] / "node"
LATTICE = Lattice.laplace(0.5, 1.0, 3)
MINIMISER = SimpleNamespace(alpha=0.3, lattice=LATTICE)
#: A seeded run's bits are these streams of a counter generator: another name is another run.
STREAMS = {"answer": "n0", "minimizer": "n0 minimizer", "published": "n0 published", "draws": "n0 draws"}


@pytest.mark.parametrize("purpose", STREAMS)
def test_a_seeded_stream_is_the_counter_generator_of_node_purpose_and_number(purpose):
    expected = counter_generator(7, STREAMS[purpose], 3).bytes(64)
    assert SeededNoise(7, "n0").entropy(purpose, 3)(64) == expected
    assert SeededNoise(7, "n0").generator(purpose, 3).bytes(64) == expected


def test_what_is_drawn_of_a_seed_is_its_stream_through_the_sampler():
    noise = SeededNoise(7, "n0")
    assert np.array_equal(noise.take(LATTICE, 5, 2), LATTICE.sample(5, counter_generator(7, "n0", 2).bytes))
    of_paper = simulated("gaussian", 2.0, 5, counter_generator(7, "n0", 2))
    assert np.array_equal(noise.of_paper("gaussian", 2.0, 5, 2), of_paper)
    of_message = simulated("laplace", 2.0, 5, counter_generator(7, "n0 published", 2))
    assert np.array_equal(noise.of_message(2.0, 5, 2), of_message)
    assert not noise.of_message(0.0, 5, 2).any()
    bits = counter_generator(7, "n0 minimizer", 2).bytes  # one stream: first eps, then xi
    eps, rounded = spherical(5, 0.3, bits)
    for found, expected in zip(
        noise.perturbation(MINIMISER, 5, 2), (eps, [rounded], LATTICE.sample(5, bits)), strict=True
    ):
        assert np.array_equal(found, expected)


def test_without_a_seed_nothing_is_drawn_twice():
    """Of 100 coordinates, two equal answers have a chance below 2^-100."""
    one, other = SystemNoise(), SystemNoise()
    draws = {
        "take": lambda noise: noise.take(LATTICE, 100, 1),
        "perturbation": lambda noise: noise.perturbation(MINIMISER, 100, 1)[0],
        "of_paper": lambda noise: noise.of_paper("laplace", 1.0, 100, 1),
        "of_message": lambda noise: noise.of_message(1.0, 100, 1),
        "draws": lambda noise: noise.draws(1).random(100),
    }
    for name, draw in draws.items():
        assert len({draw(one).tobytes(), draw(one).tobytes(), draw(other).tobytes()}) == 3, name


def test_noise_drawn_ahead_is_taken_once_and_drawn_again_when_half_is_gone():
    noise = SystemNoise()
    noise.refill(LATTICE, 4, 6)
    ahead = {n.tobytes() for n in noise.pool[LATTICE]}
    noise.refill(LATTICE, 4, 6)
    assert len(noise.pool[LATTICE]) == len(ahead) == 6  # more than half is left: nothing is drawn
    assert {noise.take(LATTICE, 4, k).tobytes() for k in range(6)} == ahead
    assert noise.take(LATTICE, 4, 6).shape == (4,)
    assert not noise.pool


def test_a_seed_makes_a_run_repeatable_and_is_said():
    assert isinstance(noise_source(None, "n0"), SystemNoise)
    seeded = noise_source(0, "n0")
    assert isinstance(seeded, SeededNoise)
    assert "not private" in seeded.sampler
    assert seeded.source != noise_source(1, "n0").source != SystemNoise.source


@pytest.mark.runs
def test_nothing_else_of_a_device_draws():
    """But for the ledger's number and for rows that are made up, from a public seed."""
    drawing = {"urandom", "default_rng", "counter_generator", "spherical", "sample"}
    found = {}
    for room in NODE.rglob("*.py"):
        tree = list(ast.walk(ast.parse(room.read_text(encoding="utf-8"))))
        names = {n.attr for n in tree if isinstance(n, ast.Attribute)} | {n.id for n in tree if isinstance(n, ast.Name)}
        if drawn := names & drawing:
            found[room.name] = drawn
    assert found == {
        "system.py": {"urandom"},
        "noise_source.py": drawing - {"urandom"},
        "data.py": {"counter_generator"},
    }


def test_who_asks_the_machine_for_entropy():
    """The noise; a new ledger's id; a node's keys of a masked run, and of a session among those it trusts."""
    asking = set()
    for room in NODE.rglob("*.py"):
        tree = ast.walk(ast.parse(room.read_text(encoding="utf-8")))
        if any(isinstance(n, ast.Attribute) and ast.unparse(n).endswith("machine.entropy") for n in tree):
            asking.add(room.name)
    assert asking == {"noise_source.py", "ledger_schema.py", "run_masks.py", "keys.py"}
