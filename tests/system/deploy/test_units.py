"""The units and scripts of deploy/, read by the programs that they are for."""

import shutil
import subprocess

import pytest

from tests.support.daemons.deployed_fleet import UNITS
from tests.support.paths import DEPLOY

# --- the units ---


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # The program is not installed where the unit expects it; everything else is the unit itself.
    text = (DEPLOY / unit).read_text().replace("/opt/hushgrid/bin/hushgrid", shutil.which("true"))
    copy = tmp_path / unit
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("script", ["install.sh", "certificates.sh"])
def test_an_install_script_is_shell_and_says_how_it_is_used(script):
    subprocess.run(["sh", "-n", str(DEPLOY / script)], check=True)
    done = subprocess.run(["sh", str(DEPLOY / script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
