"""A ledger with a few spends, and how another process opens it."""

import shutil

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import Ledger
from tests.support.devices.gated_device import spend

RUN = b"r" * 16


def reopened(ledger):
    ledger.close()
    return Ledger(ledger.path, "n0")


def fill(ledger, answers, run=RUN, **over):
    ledger.join(run, b"plan")
    for k in range(answers):
        ledger.commit(run, spends=[spend(k + 1, **over)], state=b"state %d" % k)


def opening(path, node="n0"):
    with pytest.raises(InputError) as caught:
        Ledger(path, node)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "expected" in line
    assert "\n" not in line
    return line


def copied(ledger, place, *, log):
    """The files of an open ledger, as a backup or a power cut has them; without its log where that was forgotten."""
    place.mkdir()
    copy = place / ledger.path.name
    shutil.copy(ledger.path, copy)
    if log:
        shutil.copy(ledger.path.with_name(ledger.path.name + "-wal"), place)
    return copy
