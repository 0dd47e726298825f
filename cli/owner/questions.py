"""The questions that a device answers, as its owner reads them in `hushgrid check DEVICE`: one line each,
from public numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hushgrid.broker.watch.ledger_facts import Source, reading
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.questions import answered
from hushgrid.node.problems.registry import TAGS


def questions(config: DeviceConfig, device: Device) -> list[str]:
    """A line each: what may be asked, and what the answers may tell."""
    entries = answered(config, device.kind, kinds_at_birth(config))
    lines = [f"answers {entry.kind}: {TAGS[entry.kind].reveals(entry, device)}" for entry in entries]
    if config.allow.problems is None and config.problem is None:
        lines.append("no allow.problems: it answers whatever kind of question there was when its ledger was born")
    return lines or ["answers nothing: no question of allow.problems is one of an algorithm that it allows"]


def kinds_at_birth(config: DeviceConfig) -> Sequence[str]:
    """Those of the device's ledger; of a device that has none yet, or none that can be read, the kinds of now."""
    ledger = Path(config.state) / f"{config.node}.ledger"
    with suppress(InputError), reading(Source(ledger)) as opened:
        return opened.kinds_at_birth or tuple(TAGS)
    return tuple(TAGS)
