"""A fleet as a table on the terminal, kept up to date: `hushgrid watch` without --http, `hushgrid status --watch`."""

from __future__ import annotations

import signal
import time
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document

if TYPE_CHECKING:
    from rich.console import Group

    from hushgrid.node.config.watch import WatchConfig

FRESH_S = 0.5  #: between two pictures
COLOURS = {"gone": "red", "silent": "yellow", "refused": "red", "budget": "red", "certificate": "yellow"}


def ended_by_signal() -> Event:
    """What is set once TERM or INT has come."""
    ended = Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended


def live(config: WatchConfig) -> int:
    """Shows the fleet until TERM or INT. Raises InputError if rich is not installed."""
    try:
        from rich.live import Live
    except ImportError:
        raise InputError("rich: not installed, expected the extra watch (or --http, or hushgrid status)") from None
    from hushgrid.broker.watch.listener import Listener
    from hushgrid.broker.watch.model import Model

    model = Model(config.fleet, config.broker)
    ended = ended_by_signal()
    listener = Listener(config, model)
    listener.start()
    with Live(auto_refresh=False, vertical_overflow="visible") as screen:
        while not ended.wait(FRESH_S):
            with model.changed:
                view = model.fleet_view()
            screen.update(table(view), refresh=True)
    listener.stop()
    return 0


def table(view: Document) -> Group:
    """A view of a fleet as a table: every text plain, in which a terminal finds no command."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from hushgrid.broker.watch.display import COLUMNS

    rows, broker = view["rows"], view["broker"]
    head = Text(f"{view['fleet']} on {broker['url']}, {time.strftime('%H:%M:%S', time.gmtime(view['now']))} UTC")
    if not broker["connected"]:
        head.append(f"\nthe broker is away: {broker['why']}. What is shown is old.", style="bold red")
    used = [key for key in COLUMNS if any(row["cells"][key] for row in rows)] or ["node"]
    drawn = Table(box=None)
    for key in used:
        drawn.add_column(COLUMNS[key], no_wrap=key != "now", overflow="ellipsis")
    for row in rows:
        style = next((COLOURS[flag] for flag in row["flags"]), "") if broker["connected"] else "dim"
        drawn.add_row(*(Text(row["cells"][key]) for key in used), style=style)
    return Group(head, drawn)
