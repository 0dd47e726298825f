"""The noise of processes that share their beginnings."""

from __future__ import annotations

import subprocess
import sys

from hushgrid.kernels.randomness import counter_generator

# --- simulation ---


def test_a_counter_generator_is_the_same_in_every_process_and_different_for_every_answer() -> None:
    code = "from hushgrid.kernels.randomness import counter_generator as c; print(c(7, 'n0', 3).bytes(32).hex())"
    here = counter_generator(7, "n0", 3).bytes(32).hex()
    for hash_seed in ("0", "1"):
        there = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed}, capture_output=True)
        assert there.stdout.decode().strip() == here
    others = [(7, "n0", 4), (7, "n1", 3), (8, "n0", 3), (-7, "n0", 3), (77, "n0", 3)]
    assert len({here, *(counter_generator(*key).bytes(32).hex() for key in others)}) == 6


def test_a_device_draws_noise_without_loading_scipy_or_mpmath() -> None:
    code = (
        "import sys; from hushgrid.kernels.privacy.noise import Lattice\n"
        "for m in (Lattice.laplace, Lattice.gaussian): m(1.0, 1.0, 1).sample(5, lambda n: bytes(n) if n > 8 else b'1' "
        "* n)\n"
        "print(sorted({'scipy', 'mpmath', 'numba'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


# --- A process that accounts loads no more than it needs ---

# --- wrong input ---


def test_a_device_counts_without_loading_numerical_libraries() -> None:
    code = (
        "import sys; from hushgrid.kernels.privacy import accounting as a; a.claimed_epsilon('gdp', 1.0, 10, 1e-5)\n"
        "print(sorted({'numpy', 'scipy', 'mpmath'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
