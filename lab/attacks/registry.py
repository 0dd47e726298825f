"""Every attack there is: what the files of this folder declare."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from hushgrid.lab import attacks
from hushgrid.lab.attacks.base import Attack
from hushgrid.lab.attacks.transcript import Transcript


def _found() -> tuple[Attack, ...]:
    every: list[Attack] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(attacks.__path__, f"{attacks.__name__}.")):
        if module == __name__:
            continue
        for kind in vars(import_module(module)).values():
            if isinstance(kind, type) and issubclass(kind, Attack) and kind.__module__ == module and kind is not Attack:
                if missing := [key for key in ("algorithms", "problem") if not hasattr(kind, key)]:
                    raise TypeError(f"{module}: {kind.__name__}: found no {', '.join(missing)}, expected a declaration")
                every.append(kind())
    return tuple(every)


ATTACKS: tuple[Attack, ...] = _found()


def fitting(transcript: Transcript) -> list[Attack]:
    """The attacks on this run."""
    return [attack for attack in ATTACKS if attack.fits(transcript)]
