"""Every algorithm there is: the files of this folder that declare one."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Union

from hushgrid.kernels import algorithms
from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Rounds, Star, Variant, Walk
from hushgrid.kernels.errors import InputError

#: What must be declared, beside what `Algorithm` declares for all.
DECLARED = ("title", "paper", "claim", "examples")
MACHINES = {"star": ("agent", "server"), "token": ("agent",), "neighbours": ("agent",)}


def declared(module: ModuleType) -> dict[str, type[Algorithm]]:
    """The algorithms of a file, by name. Raises TypeError, one line, if one leaves out what every one must declare."""
    found = {}
    for kind in vars(module).values():
        own = isinstance(kind, type) and issubclass(kind, Algorithm) and kind.__module__ == module.__name__
        if not own or kind.__struct_config__.tag is None:
            continue
        name = str(kind.__struct_config__.tag)
        missing = [key for key in DECLARED if not hasattr(kind, key)]
        base = {"star": Star, "token": Walk, "neighbours": Rounds}[kind.pattern]
        missing += [key for key in MACHINES[kind.pattern] if getattr(kind, key) is getattr(base, key)]
        missing += ["step_ratio"] if kind.step_ratio is Algorithm.step_ratio else []
        missing += ["token"] if kind.pattern == "token" and not hasattr(kind, "token") else []
        if kind.published is not None:
            missing += [key for key in ("finding",) if getattr(kind, key) is getattr(Algorithm, key)]
        if kind.published in ("paper", "scales") and kind.published_noise is Algorithm.published_noise:
            missing.append("published_noise")
        missing += [f"example of variant {v}" for v in variants(kind) if not getattr(kind, "examples", {}).get(v)]
        if missing:
            raise TypeError(
                f"{module.__name__}: algorithm {name}: found no {', '.join(missing)}, expected a declaration"
            )
        found[name] = kind
    return found


def variants(kind: type[Algorithm]) -> tuple[Variant, ...]:
    """The variants that there are of an algorithm."""
    return ("guarded", "none") if kind.published is None else ("guarded", "published", "none")


def check_variant(algorithm: Algorithm, file: str) -> None:
    """Raises InputError if there is no such variant of the algorithm."""
    if algorithm.variant not in (known := variants(type(algorithm))):
        raise InputError(
            f"{file}: algorithm.variant: found {algorithm.variant}, expected {' or '.join(known)} "
            f"(algorithm.name: {algorithm.name})"
        )


def _found() -> dict[str, type[Algorithm]]:
    every: dict[str, type[Algorithm]] = {}
    for module in pkgutil.iter_modules(algorithms.__path__, f"{algorithms.__name__}."):
        every |= declared(import_module(module.name))
    return dict(sorted(every.items()))


ALGORITHMS: dict[str, type[Algorithm]] = _found()
PLUGGED: list[str] = []  #: modules from outside whose algorithms stand among them
if TYPE_CHECKING:
    AnyAlgorithm = Star | Walk | Rounds
else:  # a tagged union: the name says which
    AnyAlgorithm = Union[tuple(ALGORITHMS.values())]  # noqa: UP007


def plug(names: Sequence[str], file: str) -> None:
    """Imports modules from outside of the program, and takes in the algorithms that they declare.

    Before the first plan or scenario is read: the structs that hold a section (`registry.AnyAlgorithm`) fix then which
    there are. `file` lists them. Raises InputError if one cannot be imported, or declares none or a known one.
    """
    global AnyAlgorithm
    for name in names:
        if name in PLUGGED:
            continue
        try:
            found = declared(import_module(name))
        except Exception as error:  # code from outside fails in its own way
            raise InputError(f"{file}: plugins: {name}: {' '.join(str(error).split())}, expected a module") from None
        known = sorted(found.keys() & ALGORITHMS.keys())
        if not found or known:
            what = f"algorithm {known[0]}, which there is" if known else "no algorithm"
            raise InputError(f"{file}: plugins: {name}: found {what}, expected a new one")
        ALGORITHMS.update(found)
        PLUGGED.append(name)
    if not TYPE_CHECKING:
        AnyAlgorithm = Union[tuple(ALGORITHMS.values())]  # noqa: UP007


def of_patterns(patterns: tuple[Pattern, ...]) -> tuple[str, ...]:
    """Names of the algorithms of these patterns."""
    return tuple(name for name, kind in ALGORITHMS.items() if kind.pattern in patterns)
