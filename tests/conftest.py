"""Brokers for every test that needs one: the real ones, each started for its test and ended with it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hushgrid.broker import brokers

# No test is timed: a slow or busy machine is no defect.
settings.register_profile("hushgrid", deadline=None)
settings.load_profile("hushgrid")


def _need_mosquitto() -> None:
    if brokers.find_mosquitto() is None:
        if os.environ.get("HUSHGRID_REQUIRE_MOSQUITTO"):
            pytest.fail("mosquitto is required here (HUSHGRID_REQUIRE_MOSQUITTO) and not installed")
        pytest.skip("mosquitto is not installed (PATH, /usr/sbin, /usr/local/sbin)")


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person running the tests has set for their own broker is not sent to ours."""
    monkeypatch.delenv("HUSHGRID_MQTT_USER", raising=False)
    monkeypatch.delenv("HUSHGRID_MQTT_PASSWORD", raising=False)


@pytest.fixture
def mosquitto_program() -> Path:
    """mosquitto itself, for a test that configures it in its own way."""
    _need_mosquitto()
    found = brokers.find_mosquitto()
    assert found is not None
    return found


@pytest.fixture
def start_mosquitto(tmp_path: Path) -> Iterator[brokers.OwnBroker]:
    """start_mosquitto(acl=..., password=..., tls=..., config=...): a mosquitto, ended with the test."""
    _need_mosquitto()
    started: list[brokers.RunningBroker] = []

    def start(**options):
        directory = tmp_path / f"mosquitto{len(started)}"
        started.append(brokers.start("mosquitto", directory, **options))
        return started[-1]

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def mosquitto(start_mosquitto) -> brokers.OwnBroker:
    return start_mosquitto()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[brokers.OwnBroker]:
    with brokers.start("embedded", tmp_path / "embedded") as broker:
        yield broker


@pytest.fixture(params=["embedded", pytest.param("mosquitto", marks=pytest.mark.mosquitto)])
def any_broker(request: pytest.FixtureRequest) -> brokers.OwnBroker:
    """The test runs on each broker."""
    return request.getfixturevalue(request.param)
