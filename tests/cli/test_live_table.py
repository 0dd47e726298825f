"""The live table of `hushgrid watch` on a terminal, and the words of a row that the page has too."""

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from hushgrid.broker.watch.display import displayed
from hushgrid.broker.watch.model import Model
from hushgrid.cli.operator.live import table
from hushgrid.node import status
from hushgrid.node.transport.link import Message
from hushgrid.node.wire import Topics
from tests.support.daemons.simulated_fleet import birth
from tests.support.status import PLAIN

TOPICS = Topics("demo")
WINDOW = {"epsilon": 20.0, "epsilon_left": 12.0, "lifetime": 400.0, "epsilon_left_life": 300.0, "window_s": 86400.0}


def model(*, version="0.2.0", connected=True, **more):
    made = Model("demo", "mqtt://broker")
    made.link(True)
    made.take(Message(TOPICS.state("z1"), birth(version=version), False))
    made.take(Message(TOPICS.status("z1"), status.encode(replace(PLAIN, **more)), False))
    made.link(connected, "" if connected else "no \x1b[2Janswer")
    return made


def drawn(made):
    out = StringIO()
    Console(file=out, width=160, force_terminal=True, color_system="standard", legacy_windows=False).print(
        table(made.fleet_view())
    )
    return out.getvalue()


def test_a_terminal_finds_no_command_and_no_markup_in_what_devices_say():
    text = drawn(model(version="\x1b]0;owned\x07[bold]x[/bold]", connected=False))
    assert "]0;owned" in text
    assert "[bold]x[/bold]" in text
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_only_columns_that_say_something_are_shown():
    text = drawn(model(**WINDOW))
    assert "12 of 20 in 24h" in text
    assert "300 of 400" in text
    assert "Last refusal" not in text


def test_a_broker_that_is_away_is_said_above_what_is_old():
    assert "the broker is away: no ?[2Janswer. What is shown is old." in drawn(model(connected=False))


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        ({}, []),
        (WINDOW, []),
        (WINDOW | {"epsilon_left": 3.99}, ["budget"]),
        (WINDOW | {"epsilon_left_life": 79.0}, ["budget"]),
        ({"epsilon_left": 1.0}, []),  # of a whole that nobody says
        ({"certificate_days": 59}, ["certificate"]),
        ({"certificate_days": 60}, []),
        ({"certificate_days": -1}, ["certificate"]),
        ({"refused": "budget", "last": "refused"}, ["refused"]),
        ({"refused": "budget", "last": "done"}, []),  # it has taken part since
    ],
)
def test_a_row_is_of_the_kinds_that_its_figures_say(more, flags):
    assert displayed(model(**more).rows()[0])["flags"] == flags


def test_the_words_of_a_row_are_short_whatever_a_device_says():
    row = model(window_s=1e300, epsilon_left=1e-300, epsilon=1e300, session=10**15, certificate_days=-1).rows()[0]
    cells = displayed(row)["cells"]
    assert max(map(len, cells.values())) <= 64
    assert cells["certificate"] == "has ended"
