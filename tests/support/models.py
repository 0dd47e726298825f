"""Zone models in a test's own process, where a device has one of its own build them."""

from collections.abc import Sequence
from pathlib import Path

from hushgrid.grid_cases.matpower import load
from hushgrid.grid_cases.zone.build import _cached
from hushgrid.grid_cases.zone.model import ZoneModel


def built_here(
    case: str | Path, name: str, buses: Sequence[int], diagonal: bool = False, ignore: Sequence[str] = ()
) -> ZoneModel:
    """What `ensure_model` returns."""
    return _cached(load(case).without(ignore), name, buses, diagonal, cache=True)
