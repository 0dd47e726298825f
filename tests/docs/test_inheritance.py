"""A class is read where it stands: few of its lines are inherited, and from few places."""

import importlib
import inspect

from msgspec import Struct

from tests.support.layers import MODULES

DEEPEST = 2  #: bases above a class, one above the other
#: Deeper ones, each with its reason.
EXCEPTIONS = {
    "broker.sites.lower.SiteCoordinator": "a coordinator of a star, whose answers are given to the fleet above",
    "broker.simulation.problems.records.RowSetup": "what rows, a graph and any problem give to a simulation",
    "broker.simulation.problems.statistics.StatisticSetup": "what rows, a graph and any problem give to a simulation",
    "kernels.algorithms.dgd.Node": "a neighbour, mixing and the proximal step, of which each has its own papers",
    "kernels.algorithms.extra.Node": "a neighbour, mixing and the proximal step, of which each has its own papers",
    "kernels.algorithms.nids.Node": "a neighbour, mixing and the proximal step, of which each has its own papers",
}


def counted(cls):
    """Interfaces, records of fields and errors are no towers."""
    ours = cls.__module__.startswith("hushgrid.")
    return ours and not getattr(cls, "_is_protocol", False) and not issubclass(cls, Struct | BaseException)


def bases_above(cls):
    return max((bases_above(base) + counted(base) for base in cls.__bases__), default=0)


def test_inheritance_is_at_most_two_deep():
    modules = [importlib.import_module(name) for name in MODULES]
    classes = {cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass) if counted(cls)}
    deep = {f"{c.__module__}.{c.__name__}".removeprefix("hushgrid.") for c in classes if bases_above(c) > DEEPEST}
    assert deep == {*EXCEPTIONS}
