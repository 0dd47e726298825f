"""Another zone, case, mask or number of features is a new data version by itself: nothing that was kept of the old one
counts.
"""

import os

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.device import AnswerMemory
from tests.support.site.source_device import BASE, SourceDevice, table

MORE = (1, 2, 3, 4, 5)


def write(device, buses, name="loads.csv"):
    numbers = [float(10 * bus) for bus in buses]
    (device.directory / name).write_text(table(numbers, numbers, buses))


@pytest.fixture
def device(tmp_path):
    made = SourceDevice(tmp_path / "z1", {"file": "loads.csv", "within": 0.4})
    write(made, (1, 2, 3))
    yield made.start()
    made.end()


def test_a_zone_with_more_buses_does_not_get_the_values_kept_of_the_old_one(device):
    """It had six loads for ten places, which was a ValueError in the first answer."""
    device.run()
    version = device.version
    device.end()
    device.edit(data={"case": "case5", "zone": list(MORE)})
    write(device, MORE)
    device.start()
    assert device.version == version + 1
    assert device.holds.tolist() == [*np.array(MORE) * 10 / BASE] * 2
    assert device.restart().version == version + 1


def test_a_zone_whose_source_says_nothing_yet_has_none_of_the_old_values(device):
    device.run()
    device.end()
    device.edit(data={"case": "case5", "zone": list(MORE)})
    (device.directory / "loads.csv").unlink()
    with pytest.raises(Exception, match="no value yet"):
        device.start()
    write(device, MORE)
    assert device.restart().holds.size == 10


def test_a_death_before_the_version_has_risen_loses_nothing(device):
    device.run()
    version = device.version
    device.end()
    device.edit(data={"case": "case5", "zone": list(MORE)})
    (device.directory / "state" / "z1.intake").unlink()  # the first of the steps
    write(device, MORE)
    device.start()
    assert (device.version, device.holds.size) == (version + 1, 10)


@pytest.mark.parametrize("source", [None, {"file": "loads.csv", "within": 0.05}], ids=["file", "source"])
@pytest.mark.parametrize(
    "change",
    [
        {"data": {"case": "case5", "zone": [1, 2, 4]}},
        {"data": {"case": "case14", "zone": [1, 2, 3]}},
        {"allow": {"loads": {"p": [1, 2, 3], "q": [2]}}},
    ],
    ids=["zone", "case", "mask"],
)
def test_whatever_public_part_changes_the_version_rises_once_at_the_start(device, source, change):
    write(device, (1, 2, 3), "typical.csv")
    device.edit(source=source, data={"case": "case5", "zone": [1, 2, 3], "loads": "typical.csv"})
    device.restart()
    memory = AnswerMemory(device.ledger, "z1")
    device.ledger.join(b"run", b"")
    device.ledger.commit(b"run", answers=[(memory.key("q"), b"answer")], status="done")
    version = device.version
    assert device.restart().version == version
    zone = change.get("data", {}).get("zone", [1, 2, 3])
    for name in ("loads.csv", "typical.csv"):  # in place: the same file, size and time
        path, stat = device.directory / name, (device.directory / name).stat()
        text = path.read_text()
        if zone != [1, 2, 3]:
            path.write_text(text.replace("\n3,", "\n4,"))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if "data" in change:
        change = {"data": change["data"] | {"loads": "typical.csv"}}
    device.edit(**change)
    assert device.restart().version == version + 1
    assert device.ledger.answer(memory.key("q")) is None
    assert device.restart().version == version + 1


def test_a_ledger_of_an_older_release_only_remembers_what_it_sees_first(device):
    device.run()
    version = device.version
    with device.ledger.tables.transaction():
        device.ledger.tables.db.execute("DELETE FROM meta WHERE key = 'public'")
    assert device.restart().version == version
    assert device.ledger.public is not None


def test_loads_of_another_zone_are_refused_in_one_line(device):
    with pytest.raises(InputError, match="z1: found 10 loads, expected 6"):
        device.data_source.device.holding(np.zeros(10))


def test_rows_of_other_features_are_other_data(tmp_path):
    device = SourceDevice(tmp_path / "n0", {"file": "rows.npz", "within": 0.4})
    for q in (2, 3):
        np.savez(device.directory / f"first-{q}.npz", A=np.full((4, q), 0.5), b=np.ones(4))
    keys = {"labels": {"classes": 2}, "problem": {"kind": "logistic", "scale": 1.0, "row_bound": 1.0}}
    device.edit(node="n0", data="first-2.npz", **keys)
    np.savez(device.directory / "rows.npz", A=np.full((4, 2), 0.25), b=np.ones(4))
    device.start().run()
    version = device.version
    device.edit(data="first-3.npz")
    np.savez(device.directory / "rows.npz", A=np.full((4, 3), 0.25), b=np.ones(4))
    device.restart()
    assert device.version == version + 1
    assert device.data_source.device.shard.A.shape == (4, 3)
    device.end()
