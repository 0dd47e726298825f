"""What every test has: files in memory, examples of a number that is chosen, no process unless it is a system test, and
brokers: the real ones, each started for its test and ended with it."""

import gc
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hushgrid.broker.report.drawings import plots
from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.servers.process import OwnBroker, RunningBroker
from hushgrid.node.problems.power_flow import device as zones
from tests.support import examples, models, tiers
from tests.support.charts import sketch
from tests.support.command_line import Said

DRAWN = plots._svg
SYSTEM = Path(__file__).parent / "system"
#: A disk syncs every commit of a ledger, which takes most of a test's time and shows nothing that memory does not.
MEMORY, ROOM = Path("/dev/shm"), 2 << 30

if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# No test is timed: a slow or busy machine is no defect.
settings.register_profile("hushgrid", examples.of(100))
settings.load_profile("hushgrid")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Where draws are new ones, all workers have one seed."""
    if examples.THOROUGH and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = os.environ.setdefault("HUSHGRID_SEED", str(secrets.randbelow(2**32)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if examples.THOROUGH:
        terminalreporter.write_line(f"drawn with --hypothesis-seed={config.getoption('hypothesis_seed')}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if "not runs" in config.option.markexpr and tiers.is_left_out(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is of another tier than the first, before -m chooses."""
    for item in items:
        if item.path.is_relative_to(SYSTEM):
            item.add_marker(pytest.mark.system)
    tiers.mark_products(items)


def pytest_collection_finish() -> None:
    """Modules and collected tests live as long as the process: the garbage collector need not look at them again and
    again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that starts a process, or a broker, stands below tests/system."""
    if not request.node.path.is_relative_to(SYSTEM):
        started = subprocess.Popen.__init__

        def refused(*_: object, **__: object) -> None:
            raise AssertionError("this test starts a process: it belongs below tests/system")

        def fonts_only(self: subprocess.Popen[bytes], command: list[str], *rest: Any, **keys: Any) -> None:
            (started if command[0] == "fc-list" else refused)(
                self, command, *rest, **keys
            )  # matplotlib's, once on a machine

        monkeypatch.setattr(subprocess.Popen, "__init__", fonts_only)
        monkeypatch.setattr(os, "fork", refused)
        monkeypatch.setattr(zones, "ensure_model", models.built_here)


def _need_mosquitto() -> None:
    if find_mosquitto() is None:
        if os.environ.get("HUSHGRID_REQUIRE_MOSQUITTO"):
            pytest.fail("mosquitto is required here (HUSHGRID_REQUIRE_MOSQUITTO) and not installed")
        pytest.skip("mosquitto is not installed (PATH, /usr/sbin, /usr/local/sbin)")


@pytest.fixture(autouse=True, scope="session")
def _sketched() -> Iterator[None]:
    """Reports of this process hold sketches of their charts."""
    with pytest.MonkeyPatch.context() as held:
        held.setattr(plots, "_svg", sketch)
        yield


@pytest.fixture
def charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports with their charts, for a test of how they look."""
    monkeypatch.setattr(plots, "_svg", DRAWN)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person running the tests has set for their own broker is not sent to ours."""
    monkeypatch.delenv("HUSHGRID_MQTT_USER", raising=False)
    monkeypatch.delenv("HUSHGRID_MQTT_PASSWORD", raising=False)


@pytest.fixture
def hushgrid(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """hushgrid(*arguments), in this process and an empty directory of its own."""
    monkeypatch.chdir(tmp_path)

    from hushgrid.cli.main import main

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture
def mosquitto_program() -> Path:
    """mosquitto itself, for a test that configures it in its own way."""
    _need_mosquitto()
    found = find_mosquitto()
    assert found is not None
    return found


@pytest.fixture
def start_mosquitto(tmp_path: Path) -> Iterator[OwnBroker]:
    """start_mosquitto(acl=..., password=..., tls=..., config=...): a mosquitto, ended with the test."""
    _need_mosquitto()
    started: list[RunningBroker] = []

    def start(**options):
        directory = tmp_path / f"mosquitto{len(started)}"
        started.append(brokers.start("mosquitto", directory, **options))
        return started[-1]

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def mosquitto(start_mosquitto) -> OwnBroker:
    return start_mosquitto()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[OwnBroker]:
    with brokers.start("embedded", tmp_path / "embedded") as broker:
        yield broker


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
def any_broker(request: pytest.FixtureRequest) -> OwnBroker:
    """The test runs on each broker."""
    return request.getfixturevalue(request.param)
