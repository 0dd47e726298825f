"""A process that draws no report pays nothing for one."""

from __future__ import annotations

import subprocess
import sys

# The drawing of the grid --------------------------------------------------------------------------------------------


def test_the_report_costs_nothing_until_it_is_drawn() -> None:
    code = "import sys, hushgrid.broker.report.build; sys.exit('matplotlib' in sys.modules or 'cvxpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
