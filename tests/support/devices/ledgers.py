"""A ledger with a few spends, and how another process opens it."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_file import snapshot
from hushgrid.node.privacy.marks import MarkFile
from tests.support.devices.gated_device import spend

RUN = b"r" * 16


def marked(path):
    """The mark in a mark file."""
    return MarkFile(path, sync=False).read()


@contextmanager
def copy_of(path):
    """A ledger as it stands, of a device that runs, was killed or has ended; the files stay as they are."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / path.name
        snapshot(path, copy)
        ledger = Ledger(copy, None, durable=False)
        try:
            yield ledger
        finally:
            ledger.close()


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


def killed(ledger):
    """What kill -9 leaves: nothing is written any more, and no lock is held."""
    ledger.tables.file.held = ledger.tables.file.opened = False
    ledger._give_up()


def copied(ledger, place, *, log):
    """The files of an open ledger, as a backup or a power cut has them; without its log where that was forgotten."""
    place.mkdir()
    copy = place / ledger.path.name
    shutil.copy(ledger.path, copy)
    if log:
        for end in ("-wal", "-log"):
            if (beside := ledger.path.with_name(ledger.path.name + end)).exists():
                shutil.copy(beside, place)
    return copy
