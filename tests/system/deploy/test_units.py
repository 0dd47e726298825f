"""The units and scripts of deploy/, read by the programs that they are for."""

import re
import shutil
import subprocess
import sys

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


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_ended_by_no_signal_but_term_and_int_from_its_first_moment_on(unit):
    (command,) = re.findall("^ExecStart=(.*)$", (DEPLOY / unit).read_text(), re.M)
    program, ignoring, rest = command.split(" ", 2)
    assert program == "/usr/bin/env"
    ended = subprocess.run(
        [program, ignoring, sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGHUP); "
                                                  "print('here')"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "here\n")
    assert rest.startswith("/opt/hushgrid/bin/hushgrid ")


@pytest.mark.parametrize("script", ["install.sh", "deb.sh", "wheelhouse.sh"])
def test_an_install_script_is_shell_and_says_how_it_is_used(script):
    subprocess.run(["sh", "-n", str(DEPLOY / script)], check=True)
    done = subprocess.run(["sh", str(DEPLOY / script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
