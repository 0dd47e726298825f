"""A process that accounts loads no more than it needs."""

from __future__ import annotations

import subprocess
import sys

# --- wrong input ---


def test_a_device_counts_without_loading_numerical_libraries() -> None:
    code = (
        "import sys; from hushgrid.kernels.privacy import accounting as a; a.claimed_epsilon('gdp', 1.0, 10, 1e-5)\n"
        "print(sorted({'numpy', 'scipy', 'mpmath'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
