"""The key of a masked run between processes: a device killed as it makes one, and the certificates that owners make."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from hushgrid.kernels.errors import Refused
from hushgrid.node.masks.identity import Identity, made_up, trust_of
from hushgrid.node.masks.run_masks import RunMasks
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.schema.sections import AllowMasked, Tls
from tests.support.daemons.deployed_fleet import certificates

RUN, X = b"r" * 16, np.zeros(3)
KILLED = """
import os, signal, sys
from pathlib import Path
from hushgrid.node.masks.identity import Trust, made_up
from hushgrid.node.masks.run_masks import RunMasks
from hushgrid.node.privacy.ledger import Ledger

def die():
    os.kill(os.getpid(), signal.SIGKILL)

ledger = Ledger(Path(sys.argv[1]), "n0")
ledger.join(b"r" * 16, b"plan")
masks = RunMasks("n0", b"r" * 16, ledger, made_up(["n0"])[0]["n0"], Trust())
if sys.argv[2] == "before it is stored":
    masks._identity.sign = lambda message: die()
print(masks.introduction().key.hex(), flush=True)
die()
"""


@pytest.mark.parametrize("when", ["before it is stored", "after it is stored"])
def test_a_device_killed_as_it_makes_its_key_has_the_one_that_it_has_shown_or_has_shown_none(tmp_path, when):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "n0.ledger"), when]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    masks = RunMasks("n0", RUN, ledger, *with_trust("n0"))
    shown = done.stdout.strip()
    assert bool(shown) == (when == "after it is stored")
    assert not shown or masks.introduction().key.hex() == shown
    assert masks.introduction() == masks.introduction()
    ledger.close()


def with_trust(node):
    identities, trust = made_up([node])
    return identities[node], trust


def test_devices_with_the_certificates_of_the_shipped_script_believe_each_other_by_their_authority(tmp_path):
    (tmp_path / "state").mkdir()
    certificates(tmp_path / "fleet", "z1", "z2")
    certificates(tmp_path / "broker", "coordinator")  # of another authority
    files = {node: [str(tmp_path / "fleet" / f"{node}.{end}") for end in ("crt", "key")] for node in ("z1", "z2")}
    owners = AllowMasked(corrupt=0, honest=2, alone=9.0, ca=str(tmp_path / "fleet" / "ca.crt"))
    tls = Tls(ca=str(tmp_path / "broker" / "ca.crt"))
    devices = {}
    for node, own in files.items():
        ledger = Ledger(tmp_path / "state" / f"{node}.ledger", node)
        ledger.join(RUN, b"plan")
        devices[node] = RunMasks(node, RUN, ledger, Identity.read(node, *own), trust_of(owners, tls))
    shown = {node: masks.introduction() for node, masks in devices.items()}
    for masks in devices.values():
        masks.meet(shown)
    one, other = (masks.pad(0, 0, shown, X, 3) for masks in devices.values())
    assert not (one + other).any()
    with pytest.raises(Refused, match="the introduction of z2: found the key of z1, expected its own"):
        devices["z1"].meet(shown | {"z2": shown["z1"]})
    for masks in devices.values():
        masks._ledger.close()
