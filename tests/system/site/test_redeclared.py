"""The owner's file read again under a running device: other sources, other bounds, other loads; what is wrong changes
nothing.
"""

import json

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from tests.support.site.source_device import SourceDevice, loads, table

P, Q = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0]
MORE, MOST = [11.0, 22.0, 33.0], [12.0, 24.0, 36.0]
ZONE = {"case": "case5", "zone": [1, 2, 3]}
FILE, SOURCE = {"loads": "typical.csv"}, {"file": "loads.csv", "within": 0.4}
COMMAND = {"command": ["cat", "loads.csv"], "within": 0.4}


@pytest.fixture
def device(tmp_path):
    """One whose file names loads and no source."""
    made = SourceDevice(tmp_path / "z1", SOURCE)
    for name, p in (("typical", P), ("loads", MORE), ("other", MOST)):
        (made.directory / f"{name}.csv").write_text(table(p, Q))
    made.edit(source=None, data=ZONE | FILE)
    yield made.start()
    made.end()


def test_a_source_takes_the_place_of_the_file_and_is_read_when_a_run_begins(device):
    device.edit(source=SOURCE)
    (device.directory / "loads.csv").unlink()
    device.reload()  # nothing is read yet
    assert device.version == 2
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    assert device.run() == 3  # a source that says nothing does not show
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    assert device.run() == 4
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    assert device.restart().version == 4
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_a_file_that_takes_the_place_of_a_source_is_another_version(device, how):
    device.edit(source=SOURCE)
    device.reload()
    version = device.run()
    device.edit(source=None)
    getattr(device, how)()
    assert device.version == version + 1  # though the file is the one that it has seen before
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    assert device.restart().version == device.run() == version + 1
    device.edit(source=SOURCE)
    getattr(device, how)()
    assert device.version == version + 2


def test_another_source_and_other_bounds_count_from_the_next_run_on(device):
    device.edit(source=SOURCE)
    device.reload()
    version = device.run()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    assert device.run() == version
    device.edit(source=SOURCE | {"file": "other.csv"})
    device.reload()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    assert (device.version, device.run()) == (version, version + 1)
    np.testing.assert_array_equal(device.holds, loads(MOST, Q))
    device.edit(source=SOURCE | {"file": "other.csv", "bounds": {"p_mw": [0.0, 15.0]}})
    device.reload()
    assert device.run() == version + 2  # the same file, read otherwise
    np.testing.assert_array_equal(device.holds, loads([12.0, 15.0, 15.0], Q))
    assert device.run() == version + 2


def test_fresh_and_the_window_count_at_once(device):
    device.edit(
        source=COMMAND, budget={"epsilon": 9.0, "window": "1000s", "adjacency": {"bounded-change": 0.01}}, fresh=2,
        retention="900s",
    )  # fmt: skip
    device.reload()
    version = device.run()
    assert device.run() == version
    device.edit(fresh=None)
    device.reload()
    assert device.run() == version + 1
    device.edit(fresh=1)
    device.reload()
    assert device.run() == version + 1
    device.clock.now += 1001.0
    assert device.run() == version + 2


def test_another_mask_of_loads_holds_from_now_on_and_makes_no_data_new(device):
    device.edit(allow={"loads": {"p": [2, 3], "q": [2]}})
    device.reload()
    assert (device.version, device.data_source.device.pinned.p) == (1, [2, 3])
    device.edit(source=SOURCE)
    device.reload()
    assert device.run() == 3
    device.edit(allow={"loads": {"p": [3], "q": [2]}})
    device.reload()
    assert (device.version, device.data_source.device.pinned.p) == (3, [3])
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"source": SOURCE | {"folder": "."}}, "source: found file and folder, expected one of"),
        ({"source": SOURCE, "data": {"case": "case5", "zone": [1, 2]}}, "expected .* at the start"),
        ({"source": SOURCE, "data": {"case": "case14", "zone": [1, 2, 3]}}, "expected the one at the start"),
        ({"source": {"mqtt": {"broker": "mqtts://x", "topic": "t", "tls": {"ca": "nowhere"}}}}, "nowhere"),
        ({"data": ZONE}, "data.loads: missing"),
        ({"data": ZONE | {"loads": "gone.csv"}}, "gone.csv"),
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [None, SOURCE], ids=["a file before", "a source before"])
def test_what_is_wrong_changes_nothing(device, before, sections, why):
    device.edit(source=before)
    device.reload()
    version, holds, data_source = device.version, device.holds, device.data_source
    if before is not None and "source" not in sections:
        sections = sections | {"source": None}
    device.edit(**sections)
    with pytest.raises(InputError, match=why):
        device.reload()
    assert device.data_source is data_source
    assert device.version == version
    np.testing.assert_array_equal(device.holds, holds)
    device.edit(source=before, data=ZONE | FILE)
    device.reload()
    assert device.version == version
    assert device.run() == version + (before is not None)


def test_rows_keep_their_number_whatever_gives_them(tmp_path):
    made = SourceDevice(tmp_path / "n0", SOURCE)
    for name, m in (("first", 4), ("longer", 5)):
        np.savez(made.directory / f"{name}.npz", A=np.full((m, 2), 0.5), b=np.ones(m))
    made.edit(source=None, data="first.npz", labels={"classes": 2}, budget={
        "epsilon": 9.0, "adjacency": {"replace-one-record": {"clip": 1.0}},
    })  # fmt: skip
    made.start()
    (made.directory / "rows.csv").write_text("0.1,0.2,1\n" * 4)
    made.edit(source={"file": "rows.csv", "within": 0.4}, data="longer.npz")
    with pytest.raises(InputError, match="found 5 rows of 2, expected 4 rows of 2 as at the start"):
        made.reload()
    made.edit(data="first.npz")
    made.reload()
    assert made.run() == 3
    assert made.data_source.device.shard.A[0].tolist() == [0.1, 0.2]
    made.end()


def test_the_file_says_again_what_it_said_and_nothing_is_another(device):
    device.edit(source=SOURCE)
    device.reload()
    data_source, said = device.data_source, len(device.said)
    device.reload()
    assert device.data_source is data_source
    assert len(device.said) == said
    assert json.loads(device.file.read_text())["node"]["source"] == SOURCE
