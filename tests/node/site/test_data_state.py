"""What a device says of its data without a source: current, or the last good ones while their file cannot be read."""

from contextlib import closing

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.site.data_source import data_source_of
from tests.support.devices.asked_pair import rows_file


def test_data_whose_file_cannot_be_read_are_the_last_good_ones_until_it_can(tmp_path):
    file = rows_file(tmp_path, np.eye(4) / 2, np.ones(4), {"replace-one-record": {"clip": 1.0}}, 2)
    said = []
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as ledger:
        data_source = data_source_of(load_device(file), str(file), ledger, said.append)
        rows, content = tmp_path / "rows.npz", (tmp_path / "rows.npz").read_bytes()
        words = [data_source.data_state]
        for change in (rows.unlink, lambda: rows.write_bytes(b"no rows"), lambda: rows.write_bytes(content)):
            change()
            data_source(None)
            words.append(data_source.data_state)
    assert words == ["current", "last-good", "last-good", "current"]
    assert ["stay as they were" in line for line in said] == [True, True, False]


def expects_four_rows(device):
    if len(device.shard.b) != 4:
        raise InputError(f"found a plan for 4 rows, expected {len(device.shard.b)}")


def test_a_run_that_is_not_for_the_data_of_now_is_refused_and_has_those_of_before_no_more(tmp_path):
    """A record may be gone because somebody has asked for it. Who has written half a file writes the rest of it."""
    file = rows_file(tmp_path, np.eye(4) / 2, np.ones(4), {"replace-one-record": {"clip": 1.0}}, 2)
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as ledger:
        data_source = data_source_of(load_device(file), str(file), ledger, [].append)
        first, version = data_source.device, ledger.data_version
        whole = (tmp_path / "rows.npz").read_bytes()
        np.savez(tmp_path / "rows.npz", A=np.eye(4)[:2], b=np.ones(2))
        for _ in range(2):
            assert data_source.fitting(expects_four_rows) is first
            with pytest.raises(InputError, match="found a plan for 4 rows, expected 2"):
                data_source(fits=expects_four_rows)
            assert (data_source.device, ledger.data_version) == (first, version)  # a refused plan changes nothing
        (tmp_path / "rows.npz").write_bytes(whole)
        assert len(data_source(fits=expects_four_rows).shard.b) == 4


def test_data_that_were_half_written_when_they_were_read_give_way_to_those_that_a_run_is_for(tmp_path):
    file = rows_file(tmp_path, np.eye(4) / 2, np.ones(4), {"replace-one-record": {"clip": 1.0}}, 2)
    whole = (tmp_path / "rows.npz").read_bytes()
    np.savez(tmp_path / "rows.npz", A=np.eye(4)[:2], b=np.ones(2))
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as ledger:
        data_source = data_source_of(load_device(file), str(file), ledger, [].append)
        half, version = data_source.device, ledger.data_version
        with pytest.raises(InputError, match="expected 2"):
            data_source.fitting(expects_four_rows)
        (tmp_path / "rows.npz").write_bytes(whole)
        fitting = data_source.fitting(expects_four_rows)
        assert len(fitting.shard.b) == 4
        assert data_source.fitting(expects_four_rows) is fitting  # it is read once, however often it is asked about
        assert (data_source.device, ledger.data_version) == (half, version)  # nothing is taken before the owner agrees
        assert len(data_source(fits=expects_four_rows).shard.b) == 4
        assert ledger.data_version == version + 1
