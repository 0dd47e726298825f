"""A disk that fails is no wrong input: the device stops (exit 4), has published nothing, and goes on when it is
back.
"""

import subprocess
from contextlib import contextmanager, suppress

import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from tests.support.devices.gated_device import Device, budget, plan, spend
from tests.support.devices.ledgers import marked

RUN = b"r" * 16


@contextmanager
def disk(path, size="1m"):
    """A small disk of our own in a folder; skipped if this machine does not let us have one."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no disk of our own: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def remount(path, how):
    subprocess.run(["mount", "-o", f"remount,{how}", path], check=True)


def fill_up(path):
    """Leave not one free block."""
    with open(path / "full", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def refuses(path, mark=None):
    """An open that fails as a disk does: exit 4, one line."""
    with pytest.raises(LedgerFailed) as caught:
        Ledger(path, "n0", mark)
    assert caught.value.exit_code == Stopped.exit_code == 4
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_disk_that_is_full_at_the_first_start_leaves_nothing_behind_and_may_come_back(tmp_path):
    with disk(tmp_path / "state") as state:
        fill_up(state)
        assert "No space left on device, expected a writable ledger" in refuses(state / "n0.ledger")
        assert [p.name for p in state.iterdir()] == ["full"]
        (state / "full").unlink()
        Ledger(state / "n0.ledger", "n0").close()


@pytest.mark.parametrize("there", [False, True])
def test_a_state_that_is_read_only_may_come_back(tmp_path, there):
    with disk(tmp_path / "state") as state:
        if there:
            Ledger(state / "n0.ledger", "n0").close()
        remount(state, "ro")
        assert "Read-only file system, expected a writable ledger" in refuses(state / "n0.ledger")
        remount(state, "rw")
        Ledger(state / "n0.ledger", "n0").close()


def test_a_state_whose_disk_is_not_there_is_no_wrong_input(tmp_path):
    """Its mount point is read-only: so is the folder the system mounts it on."""
    with disk(tmp_path / "mnt") as mnt:
        remount(mnt, "ro")
        assert "Read-only file system, expected a writable ledger" in refuses(mnt / "state" / "n0.ledger")


def test_a_disk_that_is_full_in_a_run_stops_the_step_and_nothing_of_it_is_committed(tmp_path):
    with disk(tmp_path / "state") as state:
        ledger = Ledger(state / "n0.ledger", "n0")
        ledger.join(RUN, b"plan")
        ledger.commit(RUN, spends=[spend(1)], state=b"one")
        fill_up(state)
        with pytest.raises(
            LedgerFailed, match="No space left on device, expected to write the ledger: nothing was released"
        ):
            ledger.commit(RUN, spends=[spend(2)], state=bytes(100_000))
        assert ledger.spends.no == 1
        ledger.close()
        (state / "full").unlink()
        again = Ledger(state / "n0.ledger", "n0")
        assert (again.spends.no, len(again.spends.rows()), again.runs.find(RUN).state, again.verify()) == (
            1,
            1,
            b"one",
            [],
        )
        again.commit(RUN, spends=[spend(2)])
        again.close()


def test_a_state_that_becomes_read_only_in_a_run_stops_the_step(tmp_path):
    with disk(tmp_path / "state") as state:
        ledger = Ledger(state / "n0.ledger", "n0")
        ledger.join(RUN, b"plan")
        ledger.tables.db.execute("PRAGMA query_only = ON")  # a disk that is written to cannot be remounted
        with pytest.raises(LedgerFailed, match="expected to write the ledger: nothing was released"):
            ledger.commit(RUN, spends=[spend(1)], status="stopped")
        assert ledger.spends.rows() == []
        ledger.close()


# --- the mark's disk ---


def test_a_mark_on_a_full_disk_is_still_written_in_place(tmp_path):
    with disk(tmp_path / "mark") as folder:
        device = Device(tmp_path, budget(9.0), mark=folder / "n0.mark")
        gate = device.start(plan(rounds=4))
        device.answer(gate, 1)
        fill_up(folder)
        device.answer(gate, 1)
        assert marked(folder / "n0.mark") == device.ledger.mark
        device.ledger.close()
        again = Ledger(tmp_path / "n0.ledger", "n0", folder / "n0.mark")
        assert (again.refusal, again.spends.no) == (None, 2)
        again.close()


def test_a_mark_whose_disk_is_read_only_at_the_start_stops_the_step_before_it_is_published(tmp_path):
    with disk(tmp_path / "mark") as folder:
        device = Device(tmp_path, budget(9.0), mark=folder / "n0.mark")
        device.ledger.close()
        remount(folder, "ro")
        device = Device(tmp_path, budget(9.0), mark=folder / "n0.mark")
        gate = device.start(plan(rounds=4))
        before = (folder / "n0.mark").read_bytes()
        gate.gradient([0.0] * 4)
        with pytest.raises(LedgerFailed, match=r"n0.mark: .*, expected to write the mark: nothing was released"):
            device.commit(gate)  # the driver publishes after this returns
        assert (folder / "n0.mark").read_bytes() == before  # the old one, whole
        assert len(device.ledger.spends.rows()) == 1  # paid, though nobody was given it
        device.ledger.close()
        remount(folder, "rw")
        again = Ledger(tmp_path / "n0.ledger", "n0", folder / "n0.mark")
        assert again.refusal is None
        assert marked(folder / "n0.mark") == again.mark
        again.close()


def test_a_mark_whose_disk_is_not_mounted_stops_the_device_until_it_is(tmp_path):
    folder = tmp_path / "mark"
    with disk(folder):
        ledger = Ledger(tmp_path / "n0.ledger", "n0", folder / "n0.mark")
        ledger.join(RUN, b"plan")
        ledger.commit(RUN, spends=[spend(1)])
        kept = (folder / "n0.mark").read_bytes()
        ledger.close()
    assert list(folder.iterdir()) == []
    again = Ledger(tmp_path / "n0.ledger", "n0", folder / "n0.mark")
    assert "n0.mark is gone" in again.refusal
    again.close()
    assert list(folder.iterdir()) == []  # nothing is written where the disk belongs
    (folder / "n0.mark").write_bytes(kept)  # it is back
    Ledger(tmp_path / "n0.ledger", "n0", folder / "n0.mark").close()
