"""All algorithms of the program: what the files of this folder declare, and what plugins add."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Union

from hushgrid.kernels import algorithms
from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Rounds, Star, Variant, Walk, gossip_of
from hushgrid.kernels.errors import InputError

#: What every algorithm must declare itself, because `Algorithm` has no default for it.
DECLARED = ("title", "paper")
MACHINES = {"star": ("agent", "server"), "token": ("agent",), "neighbours": ("agent",)}  #: by pattern


def declared(module: ModuleType) -> dict[str, type[Algorithm]]:
    """The algorithms that a module declares, by name.

    Raises TypeError, in one line, if one of them leaves out what every algorithm must declare.
    """
    algorithms_here = {}
    for kind in vars(module).values():
        defined_here = isinstance(kind, type) and issubclass(kind, Algorithm) and kind.__module__ == module.__name__
        if not defined_here or kind.__struct_config__.tag is None:
            continue
        name = str(kind.__struct_config__.tag)
        missing = [key for key in DECLARED if not hasattr(kind, key)]
        base = {"star": Star, "token": Walk, "neighbours": Rounds}[kind.pattern]
        missing += [key for key in MACHINES[kind.pattern] if getattr(kind, key) is getattr(base, key)]
        missing += ["step_ratio"] if kind.step_ratio is Algorithm.step_ratio else []
        missing += ["token"] if kind.pattern == "token" and not hasattr(kind, "token") else []
        if missing:
            raise TypeError(
                f"{module.__name__}: algorithm {name}: found no {', '.join(missing)}, expected a declaration"
            )
        algorithms_here[name] = kind
    return algorithms_here


def variants(kind: type[Algorithm]) -> tuple[Variant, ...]:
    """The variants in which an algorithm can run; `published` only if it declares a source of the published noise."""
    return ("guarded", "none") if kind.published is None else ("guarded", "published", "none")


def check_variant(algorithm: Algorithm, file: str) -> None:
    """Raises InputError if there is no such variant of the algorithm."""
    if algorithm.variant not in (known := variants(type(algorithm))):
        raise InputError(
            f"{file}: algorithm.variant: found {algorithm.variant}, expected {' or '.join(known)} "
            f"(algorithm.name: {algorithm.name})"
        )
    if algorithm.variant == "published" and gossip_of(algorithm):
        raise InputError(
            f"{file}: algorithm.finish: found a section, expected none (variant: published; no paper has these rounds)"
        )


def _found() -> dict[str, type[Algorithm]]:
    every: dict[str, type[Algorithm]] = {}
    for module in pkgutil.iter_modules(algorithms.__path__, f"{algorithms.__name__}."):
        every |= declared(import_module(module.name))
    return dict(sorted(every.items()))


ALGORITHMS: dict[str, type[Algorithm]] = _found()
PLUGGED: list[str] = []  #: modules from outside whose algorithms are registered
if TYPE_CHECKING:
    AnyAlgorithm = Star | Walk | Rounds
else:  # a tagged union: the name says which
    AnyAlgorithm = Union[tuple(ALGORITHMS.values())]  # noqa: UP007


def plug(names: Sequence[str], file: str) -> None:
    """Imports modules from outside of the program, and registers the algorithms that they declare.

    It must be called before the first plan or scenario is read, because the structs that hold a section
    (`registry.AnyAlgorithm`) fix the set of algorithms then. `file` is the file that lists the modules. Raises
    InputError if a module cannot be imported, declares no algorithm, or declares one whose name is known.
    """
    global AnyAlgorithm
    for name in names:
        if name in PLUGGED:
            continue
        try:
            plugged = declared(import_module(name))
        except Exception as error:  # code from outside fails in its own way
            raise InputError(f"{file}: plugins: {name}: {' '.join(str(error).split())}, expected a module") from None
        known = sorted(plugged.keys() & ALGORITHMS.keys())
        if not plugged or known:
            what = f"algorithm {known[0]}, which there is" if known else "no algorithm"
            raise InputError(f"{file}: plugins: {name}: found {what}, expected a new one")
        ALGORITHMS.update(plugged)
        PLUGGED.append(name)
    if not TYPE_CHECKING:
        AnyAlgorithm = Union[tuple(ALGORITHMS.values())]  # noqa: UP007


def of_patterns(patterns: tuple[Pattern, ...]) -> tuple[str, ...]:
    """Names of the algorithms of these patterns."""
    return tuple(name for name, kind in ALGORITHMS.items() if kind.pattern in patterns)
