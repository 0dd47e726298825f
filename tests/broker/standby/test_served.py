"""What the coordinator's loop drives, run after run, while its file changes."""

from contextlib import closing

import msgspec
import pytest

from hushgrid.broker.coordinator import daemon
from hushgrid.broker.standby.replica import Replicated
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.signals import Signals
from tests.support.paths import DEPLOY


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A coordinator's service with a standby; `.driven` is what its loop was given last."""
    file = tmp_path / "coordinator.yaml"
    file.write_text(
        f"fleet: demo\nbroker: mqtt://127.0.0.1:1\nscenario: {DEPLOY / 'scenario.yaml'}\nstate: state\nstandby: 30s\n"
    )
    config = load_coordinator(file)

    class Driven(daemon.Service):
        def drive(self):
            coordinator, link = self._made(None)
            self._serve(coordinator, link, lambda: True)
            return coordinator

    with closing(Ledger(tmp_path / "coordinator.ledger", "coordinator")) as ledger:
        made = Driven(config, str(file), daemon.declared(config, str(file)), Signals(), ledger)
        monkeypatch.setattr(daemon, "serve_all", lambda pairs, *rest: setattr(made, "driven", pairs[0][0]))
        yield made


def test_each_run_has_a_coordinator_of_its_own_with_a_standby_and_once_the_file_names_none(service):
    first = service.drive()
    assert isinstance(service.driven, Replicated)
    assert service.driven.endpoint is first
    second = service.drive()
    assert service.driven.endpoint is second
    service.config = msgspec.structs.replace(service.config, standby=None)
    assert service.drive() is service.driven
