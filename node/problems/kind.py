"""What a kind of problem declares: its sections, its public part, its device. The rest of the program asks it.

A kind is a folder of this one. `section.py` is what a scenario, a plan and a device file say of it, `kind.py` is what the
program asks of it, and declares `KIND`, which `registry` finds. Both are light to import. What needs a solver or a case
stands beside them and is imported when it is asked for: a device with rows of records never loads a power-system case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hushgrid.kernels.algorithms.base import Algorithm, Pattern
from hushgrid.kernels.algorithms.registry import of_patterns
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.patterns.star import Centre
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.schema.sections import Adjacency, Privacy, Section, Stop

if TYPE_CHECKING:
    from hushgrid.kernels.machine import Keeping
    from hushgrid.node.privacy.budget import Allowance
    from hushgrid.node.privacy.gate import Gate
    from hushgrid.node.privacy.ledger import Ledger
    from hushgrid.node.privacy.noise_source import NoiseSource

#: Puts what a run leaves on its device; returns what its own log is to say of it, or None.
Outcome = Callable[[dict[str, Vector]], str | None]


class Public(Protocol):
    """The public part of a problem: what a plan says of it, whoever wrote the plan."""

    @property
    def kind(self) -> str:
        """Name of the kind."""
        ...

    @property
    def nodes(self) -> list[str]: ...
    @property
    def digest(self) -> str:
        """Of what a device has of it that no plan says; "" where there is nothing."""
        ...

    @property
    def about(self) -> str:
        """The problem in a few words."""
        ...

    @property
    def constants(self) -> tuple[Sequence[float], int]:
        """The smoothness constant L of each node, and the largest degree of a node."""
        ...

    @property
    def held(self) -> bool:
        """Whether constraints keep the iterates bounded, however long the steps are."""
        ...

    def visits(self, algorithm: Algorithm) -> int:
        """Activations that a node is to answer, of the node that has most; 0 where no token walks."""
        ...

    def check(self, algorithm: Algorithm) -> None:
        """Raises InputError unless its parts belong together: a device computes with them, whoever wrote them."""
        ...


class Plan(Protocol):
    """What a device reads of a run's plan (`plan.Plan`)."""

    @property
    def name(self) -> str: ...
    @property
    def problem(self) -> Any: ...
    @property
    def algorithm(self) -> Algorithm: ...
    @property
    def running(self) -> Any:
        """The algorithm with the rounds that the caps of the privacy section leave."""
        ...

    @property
    def stop(self) -> Stop | None: ...
    @property
    def terms(self) -> Terms | None: ...
    @property
    def nodes(self) -> list[str]: ...


class Asked(Protocol):
    """What a scenario says that decides the public part of its problem."""

    @property
    def problem(self) -> Any: ...
    @property
    def network(self) -> Network | None: ...
    @property
    def algorithm(self) -> Any: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def stop(self) -> Stop | None: ...


class Owner(Protocol):
    """What the file of a device says of its data."""

    @property
    def node(self) -> str: ...
    @property
    def data(self) -> Any: ...
    @property
    def labels(self) -> Any: ...
    @property
    def problem(self) -> Any: ...


class Device(Protocol):
    """A device's own: its private data, which its gate alone sees, and the public part of its problem."""

    name: str
    kind: ClassVar[str]  #: name of its kind
    neighbours: ClassVar[bool]  #: whether it speaks to others than the coordinator

    @property
    def digest(self) -> str: ...

    @property
    def dimension(self) -> int: ...
    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan's public part is this device's own."""
        ...

    def limit(self, plan: Plan) -> int:
        """Bytes of the largest message of a run on this device's edges."""
        ...

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, allowance: Allowance
    ) -> tuple[Keeping, Gate]:
        """Its machine and its gate in a run that it has checked."""
        ...


class Kind(ABC):
    """A kind of problem."""

    name: ClassVar[str]  #: in a plan and in a device's birth
    sections: ClassVar[tuple[type[Section], ...]]  #: of a scenario; a tag each
    public_type: ClassVar[type]  #: its part of a plan
    patterns: ClassVar[tuple[Pattern, ...]]  #: that its nodes can take part in
    records: ClassVar[bool]  #: whether its data are records, of which one can be replaced; else quantities that change

    @property
    def folder(self) -> str:
        """Its folder here, and the file of that name wherever more of a kind is said."""
        return type(self).__module__.split(".")[-2]

    @property
    def tags(self) -> tuple[str, ...]:
        """`problem.kind` of its sections."""
        return tuple(str(s.__struct_config__.tag) for s in self.sections)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of those that solve it."""
        return of_patterns(self.patterns)

    def check(self, problem: Any, algorithm: Algorithm, file: str) -> None:
        """Raises InputError unless the algorithm solves this problem."""
        if algorithm.pattern not in self.patterns:
            tag, known = problem.__struct_config__.tag, " or ".join(self.algorithms)
            raise InputError(f"{file}: algorithm.name: found {algorithm.name}, expected {known} (problem.kind: {tag})")

    def check_questions(self, problem: Any, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        """Raises InputError unless a gate can give what the algorithm asks."""
        return None

    @abstractmethod
    def solved(self, algorithm: Algorithm) -> str:
        """What of this kind an algorithm solves, guarded: in a few words, for the table of algorithms."""

    @abstractmethod
    def unit(self, algorithm: Algorithm) -> str:
        """What its noise hides: the unit of privacy, for the table of algorithms."""

    @abstractmethod
    def located(self, problem: Any, network: Network | None, base: Path, file: str) -> Any:
        """The problem, its relative paths made relative to `base`. Raises InputError if it lacks a network, or has one."""

    @abstractmethod
    def public(self, asked: Asked, file: str) -> Public:
        """What of a scenario's problem is public. Raises InputError."""

    @abstractmethod
    def device(self, owner: Owner, path: str) -> Device:
        """A real device with its own data, read now. `path`: of its file. Raises InputError."""

    @abstractmethod
    def outcome(self, device: Any, state: Path) -> Outcome:
        """What puts what a run leaves on this device into the directory `state`."""

    @abstractmethod
    def data_words(self, data: Any) -> str:
        """What a device's file says of its data, in a few words."""

    @abstractmethod
    def hidden(self, owner: Owner, device: Any, adjacency: Adjacency) -> list[str]:
        """What the owner's adjacency hides, in words, a line each: from public numbers."""

    @abstractmethod
    def on_devices(self, problem: Any) -> str | None:
        """Why this problem cannot be one of real devices, or None: its data are with the program that makes the plan."""

    def check_answers(self, plan: Plan) -> None:
        """Raises InputError if a gate could not answer what is asked: known before a run, from what is public."""
        return None

    def warning(self, plan: Plan, source: str) -> str | None:
        """What to say before a run that is likely not what was meant; None if there is nothing. `source`: as in `centre`."""
        return None

    def centre(self, plan: Plan, source: str) -> Centre:
        """A star's coordinator. `source`: where the public part that no plan carries is found."""
        raise NotImplementedError

    def source(self, problem: Any) -> str:
        """Where a coordinator finds the public part that no plan carries; "" where there is nothing."""
        return ""
