"""All algorithms of the program: what the files of this folder declare, and what plugins add.

A plugin is a module from outside. A caller names it (`plug`), or an installed package offers it under its algorithm's
name as an entry point of the group `hushgrid.algorithms`. Only programs of a laptop read entry points
(`offer_installed`); a device runs what its owner lists and nothing else.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from msgspec import Meta

from hushgrid.kernels import algorithms
from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Rounds, Star, Variant, Walk, gossip_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.levels import SiteMember
from hushgrid.kernels.patterns.star import ServerContext, StarCentre

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
OFFERED: dict[str, str] = {}  #: algorithm -> the module of an installed package; empty unless `offer_installed` ran
GROUP = "hushgrid.algorithms"  #: of the entry points
if TYPE_CHECKING:
    AnyAlgorithm = Star | Walk | Rounds
else:  # msgspec would fix the members of a union at its first use, before a plugin: `algorithm_from` reads the section
    AnyAlgorithm = Annotated[Any, Meta(extra_json_schema={"registry": "algorithms"})]


def algorithm_from(section: object) -> AnyAlgorithm:
    """The algorithm of a section: a mapping whose `name` says which. Raises msgspec.ValidationError."""
    name = section.get("name") if isinstance(section, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise msgspec.ValidationError(f"Invalid value {name!r:.40} - at `$.name`")
    return cast("AnyAlgorithm", msgspec.convert(section, ALGORITHMS[name]))


def is_known(name: object) -> bool:
    """Whether there is an algorithm of this name. One that an installed package offers is imported and registered now.

    Raises InputError if the package cannot be imported.
    """
    if isinstance(name, str) and name not in ALGORITHMS and name in OFFERED:
        plug([OFFERED[name]], f"entry point {name} of {GROUP}")
    return isinstance(name, str) and name in ALGORITHMS


def offer_installed() -> None:
    """Reads which algorithms the installed packages offer; a package is imported only if a scenario names its own."""
    from importlib.metadata import entry_points

    OFFERED.update((point.name, point.value) for point in entry_points(group=GROUP))


def plug(names: Sequence[str], file: str) -> None:
    """Imports modules from outside of the program, and registers the algorithms that they declare.

    `file` is the file that lists the modules. Raises InputError if a module cannot be imported, declares no algorithm,
    or declares one whose name is known.
    """
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


def of_patterns(patterns: tuple[Pattern, ...]) -> tuple[str, ...]:
    """Names of the algorithms of these patterns."""
    return tuple(name for name, kind in ALGORITHMS.items() if kind.pattern in patterns)


#: The file here of an algorithm's machines around sites: `above`, `site`, `member`.
TWO_LEVELS = {"consensus-admm": "consensus_sites"}


def server_of(algorithm: Star, context: ServerContext, site: str = "") -> StarCentre:
    """The machine of the coordinator above the sites of the context, or of this site's towards its members."""
    machines = _around_sites(algorithm)
    made: StarCentre = machines.site(algorithm, context, site) if site else machines.above(algorithm, context)
    return made


def member_of(algorithm: Star, context: ServerContext, site: str) -> SiteMember:
    """A site's machine towards the coordinator above."""
    made: SiteMember = _around_sites(algorithm).member(algorithm, context, site)
    return made


def _around_sites(algorithm: Star) -> ModuleType:
    return import_module(f"{__package__}.{TWO_LEVELS[algorithm.name]}")
