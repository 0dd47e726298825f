"""What a device says of its data without a source: current, or the last good ones while their file cannot be read."""

from contextlib import closing

import numpy as np

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
