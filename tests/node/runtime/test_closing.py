"""A device that ends closes its link, its sink, its source and its ledger, each whatever the others did."""

from itertools import combinations

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.daemon import main
from hushgrid.node.site.data_source import DataSource
from hushgrid.node.site.publisher import Publisher
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.devices.asked_pair import rows_file

PARTS = {
    "link": MqttLink,
    "outlet": Publisher,
    "intake": DataSource,
    "ledger": Ledger,
}  #: in the order in which they close
FAILING = [some for count in range(len(PARTS) + 1) for some in combinations(PARTS, count)]


class Asked:
    """Somebody has asked the device to end before it began."""

    asked, reload = "SIGTERM", False

    def __bool__(self):
        return True


def closed_by(directory, monkeypatch, failing=(), **sections):
    """Runs a device to its end while closing these parts fails: the parts that were closed, in order, and the error."""
    file = rows_file(directory, np.eye(4) / 2, np.ones(4), {"replace-one-record": {"clip": 1.0}}, 2, **sections)
    closed, error = [], None

    def noted(part, close):
        def noting(*arguments, **options):
            closed.append(part)
            close(*arguments, **options)
            if part in failing:
                raise RuntimeError(part)

        return noting

    with monkeypatch.context() as held:
        for part, of in PARTS.items():
            held.setattr(of, "close", noted(part, of.close))
        try:
            assert main(load_device(file), str(file), Asked()) == 0
        except (RuntimeError, InputError) as raised:
            error = raised
    Ledger(directory / "state" / "n0.ledger", "n0").close()  # nobody holds it any more
    return closed, error


@pytest.mark.parametrize("failing", FAILING, ids="-".join)
def test_each_part_closes_whatever_the_others_did(tmp_path, monkeypatch, failing):
    closed, error = closed_by(tmp_path, monkeypatch, failing)
    assert closed == list(PARTS)
    assert isinstance(error, RuntimeError if failing else type(None))


def test_a_ledger_is_closed_when_the_devices_file_is_wrong(tmp_path, monkeypatch):
    sink = {"file": {"path": str(tmp_path / "out.json"), "group": "no-such-group"}}
    closed, error = closed_by(tmp_path, monkeypatch, sink=sink)
    assert closed == ["ledger"]
    assert "expected a group of this machine" in str(error)
