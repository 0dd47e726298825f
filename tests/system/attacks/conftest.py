"""What every attack needs beside a broker without an access list, which the adversary may be: a voice."""

import os
from collections.abc import Callable

import pytest

SHOW = "HUSHGRID_SHOW_ATTACK"


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says what an attack has got, where HUSHGRID_SHOW_ATTACK is set."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        if os.environ.get(SHOW):
            with capture.global_and_fixture_disabled():
                print(f"\n  {request.node.name}\n    {text}")

    return say
