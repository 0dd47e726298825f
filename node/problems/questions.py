"""Which questions a device answers, by its owner's file: those of a list, or the kinds that there were when its ledger
was born.

A question is a kind of problem, and of a statistic the columns that it reads and the edges of its bins. A newer program
brings new kinds. Whoever installs it has not said yes to these: without a list a device answers what its owner could
know of when its ledger was made. `node/privacy/budget.py` (`BudgetCheck.admit`) holds a plan to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.kind import DeviceFile
from hushgrid.node.problems.registry import TAGS
from hushgrid.node.schema.sections import AllowedProblem


def check_list(owner: DeviceFile, device: str, path: str) -> None:
    """Raises InputError unless an owner's list can be meant. `device`: the kind of the device."""
    kinds, declared, labels = questions_of(device), owner.problem, owner.labels
    for i, entry in enumerate(owner.allow.problems or ()):
        place = f"{path}: allow.problems[{i}]"
        if entry.kind not in kinds:
            raise InputError(f"{place}.kind: found {entry.kind}, expected one of {', '.join(kinds)}")
        if declared is not None and entry.kind != declared.kind:
            raise InputError(f"{place}.kind: found {entry.kind}, expected {declared.kind}, as problem declares")
        if not TAGS[entry.kind].fits(entry.kind, labels):
            raise InputError(f"{place}.kind: found {entry.kind}, expected one for labels of {labels}")
        keys = _narrowing(entry.kind)
        for key, value in (("columns", entry.read), ("edges", entry.edges)):
            if value is not None and key not in keys:
                raise InputError(f"{place}.{key}: found {len(value)} numbers, expected none ({entry.kind})")


def _narrowing(tag: str) -> set[str]:
    """What an owner can say of a question beside its kind: what a scenario says of such a problem."""
    (section,) = (section for section in TAGS[tag].sections if section.__struct_config__.tag == tag)
    return {"columns" if name == "column" else name for name in section.__struct_fields__} & {"columns", "edges"}


def questions_of(device: str) -> tuple[str, ...]:
    """The kinds of problems that devices of a kind can be asked about."""
    return tuple(tag for tag, kind in TAGS.items() if kind.devices == device)


def answered(owner: DeviceFile, device: str, born: Sequence[str]) -> list[AllowedProblem]:
    """The questions that a device of this kind answers, by its owner's file. `born`: the kinds at its ledger's
    birth.
    """
    entries = owner.allow.problems
    if entries is None:
        entries = tuple(AllowedProblem(kind=tag) for tag in questions_of(device) if tag in born)
    labels, declared, algorithms = owner.labels, owner.problem, owner.allow.algorithms
    return [
        entry
        for entry in entries
        if (declared is None or entry.kind == declared.kind)
        and TAGS[entry.kind].fits(entry.kind, labels)
        and (algorithms is None or {*algorithms} & {*TAGS[entry.kind].algorithms})
    ]
