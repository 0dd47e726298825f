"""A power cut takes what was not synced, in sectors, and names whose folder was not; nothing else."""

import os

import numpy as np
import pytest

from hushgrid.lab.simulate.disk import SECTOR, Disk

SEEDS = range(40)


def made(root, seed):
    disk = Disk(root / f"disk{seed}", lambda call: None)
    return disk, np.random.default_rng(seed)


def written(disk, name, content, *, synced, named=True):
    file = disk.open(disk.root / name, os.O_RDWR | os.O_CREAT, 0o600)
    disk.pwrite(file, content, 0)
    if synced:
        disk.sync(file)
    disk.close(file)
    if named:
        folder = disk.open(disk.root, os.O_RDONLY | os.O_DIRECTORY, 0)
        disk.sync(folder)
        disk.close(folder)


def test_what_was_synced_with_its_folder_survives_every_cut(tmp_path):
    for seed in SEEDS:
        disk, chance = made(tmp_path, seed)
        written(disk, "file", b"a" * 2000, synced=True)
        disk.cut(chance)
        assert (disk.root / "file").read_bytes() == b"a" * 2000


def test_of_what_was_not_synced_each_sector_comes_or_does_not(tmp_path):
    seen = set()
    for seed in SEEDS:
        disk, chance = made(tmp_path, seed)
        written(disk, "file", b"a" * 4 * SECTOR, synced=True)
        written(disk, "file", b"b" * 4 * SECTOR, synced=False)
        disk.cut(chance)
        blob = (disk.root / "file").read_bytes()
        assert len(blob) == 4 * SECTOR
        sectors = [blob[k : k + SECTOR] for k in range(0, len(blob), SECTOR)]
        assert {len(set(sector)) for sector in sectors} == {1}
        seen |= {bytes({sector[0] for sector in sectors})}
    assert {b"ab", b"ba"} & seen  # torn: some have come, some have not


def test_a_name_whose_folder_was_not_synced_may_be_lost(tmp_path):
    there = set()
    for seed in SEEDS:
        disk, chance = made(tmp_path, seed)
        written(disk, "file", b"a", synced=True, named=False)
        disk.cut(chance)
        there.add((disk.root / "file").exists())
    assert there == {True, False}


def test_a_rename_whose_folder_was_not_synced_may_be_undone_and_then_the_file_before_stands(tmp_path):
    contents = set()
    for seed in SEEDS:
        disk, chance = made(tmp_path, seed)
        written(disk, "file", b"before", synced=True)
        written(disk, "file.new", b"after", synced=True)
        disk.replace(disk.root / "file.new", disk.root / "file")
        disk.cut(chance)
        contents.add((disk.root / "file").read_bytes())
    assert contents == {b"before", b"after"}


@pytest.mark.parametrize(("fault", "number"), [("full", 28), ("read-only", 30), ("failing", 5)])
def test_a_disk_that_fails_says_why(tmp_path, fault, number):
    disk, _ = made(tmp_path, 0)
    written(disk, "file", b"a", synced=True)
    disk.fault = fault
    file = disk.open(disk.root / "file", os.O_RDWR, 0)
    with pytest.raises(OSError, match=r".") as caught:
        disk.pwrite(file, b"b", 0)
    assert caught.value.errno == number
    assert (disk.root / "file").read_bytes() == b"a"
