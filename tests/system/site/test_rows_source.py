"""A device with rows whose folder grows: as many of its last rows count as are public, and each scheduled run is a
version.
"""

import json
import os

import numpy as np
import pytest

from tests.support.site.source_device import SourceDevice

M, Q = 6, 3


@pytest.fixture
def device(tmp_path):
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "first.npz", A=rng.normal(size=(M, Q)), b=np.where(rng.normal(size=M) > 0, 1.0, -1.0))
    made = SourceDevice(
        tmp_path / "n0",
        {"folder": "rows", "within": 1.0},
        node="n0",
        data=str(tmp_path / "first.npz"),
        labels={"classes": 2},
        budget={"adjacency": {"replace-one-record": {"clip": 1.0}}},
    )
    (made.directory / "rows").mkdir()
    yield made
    made.end()


def append(device, number, rows, text=None):
    file = device.directory / "rows" / f"{number}.jsonl"
    file.write_text(text or "".join(f"{json.dumps([*row, 1])}\n" for row in rows))
    os.utime(file, ns=(number * 10**9, number * 10**9))


def firsts(device):
    """The first feature of each row that the device holds."""
    return device.data_source.device.shard.A[:, 0].tolist()


def test_the_last_rows_of_a_growing_folder_count_and_their_number_stays(device):
    device.start()
    declared = firsts(device)
    version = device.version
    append(device, 1, [[k, 0, 0] for k in range(4)])
    assert device.run() == version + 1
    assert firsts(device) == [
        *declared[-2:],
        0,
        1,
        2,
        3,
    ]  # four rows are too few: of those before the last ones count on
    append(device, 2, [[k, 0, 0] for k in range(10, 14)])
    assert device.run() == version + 2
    assert firsts(device) == [2, 3, 10, 11, 12, 13]
    append(device, 3, [], "[1, 2\n")
    append(device, 4, [[20, 0, 0]])
    assert device.run() == version + 3
    assert firsts(device) == [3, 10, 11, 12, 13, 20]  # the file that is none is left out
    assert "3.jsonl" in device.said[-1]
    device.restart()
    assert device.version == version + 3
    assert firsts(device) == [3, 10, 11, 12, 13, 20]
    assert device.data_source.device.dimension == Q
