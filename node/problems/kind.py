"""What a kind of problem declares: its sections, its public part, its device. The rest of the program reads it here.

A kind is a folder beside this file. Its `section.py` has what a scenario, a plan and a device file say of it. Its
`kind.py` has what the program asks of it, and declares `KIND`, which `registry` finds. Both are light to import. What
needs a solver or a power-system case stands in other modules of the folder, which are imported when they are needed: a
device with rows of records never loads a power-system case.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Sharing
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.rolling import Course, Periods
from hushgrid.node.schema.sections import (
    Adjacency,
    Allow,
    AllowedProblem,
    Budget,
    Privacy,
    Question,
    Section,
    Stop,
    Tls,
)
from hushgrid.node.schema.site import Source

if TYPE_CHECKING:
    from hushgrid.kernels.machine import Keeping
    from hushgrid.node.privacy.budget import BudgetCheck
    from hushgrid.node.privacy.gate import Gate
    from hushgrid.node.privacy.ledger import Ledger
    from hushgrid.node.privacy.noise_source import NoiseSource
    from hushgrid.node.problems.feed import Feed


class RunFacts(NamedTuple):
    """What an outcome is of: public facts of its run, and the version of the device's data that it was answered
    from.
    """

    run: str  #: the run's id, in hex
    name: str  #: the run's name
    reason: str  #: why the run ended
    every: float | None  #: s from one run of a continuous plan to the next; None of a run that stands alone
    residual: float | None  #: as the coordinator has measured it, if it says so
    quality: str | None  #: the coordinator's verdict, if it says so
    version: int  #: of the device's data
    age: float | None  #: s of running time since the data of this version were read; None if the device does not know
    problem: Public | None = None  #: the public part of the run's problem


#: The error of a model x (d,) on public rows that nobody has learned from; None if the model is not finite.
Tests = Callable[[Vector], float | None]


class Ended(NamedTuple):
    """How a run around a coordinator has ended there: what its view is made of, all of it from messages."""

    state: Any  #: the coordinator's last state
    z: Mapping[str, Vector]  #: what each member said last of what it shares
    residual: float | None  #: consensus residual of the last round
    met: bool  #: whether `run.stop` was met
    tests: Tests | None  #: of models, if the scenario names rows for it


FEW = 1024  #: numbers of an outcome that a JSON document has; more stand in an archive only

#: Stores the outcome of a run, vectors by name, on the device. Returns what the device's log is to say of it, or None.
#: Raises OSError if the disk does not take it.
Outcome = Callable[[dict[str, Vector], RunFacts], str | None]


class SiteOutcome(NamedTuple):
    """An outcome as other programs on the site read it."""

    body: Document  #: keys of a JSON document
    archive: bytes | None = None  #: the same as a file of its own format
    why: str = ""  #: why the device does not take it, and keeps the last one; "" if it does
    tariff: Document | None = None  #: prices and limits of the time to come, where there are any


def archive_of(outcome: dict[str, Vector]) -> bytes:
    """Vectors by name as a NumPy archive."""
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **outcome)
    return archive.getvalue()


class Public(Protocol):
    """The public part of a problem: what a plan says of it. A device checks it, because anyone can write a plan."""

    @property
    def kind(self) -> str:
        """The name of the kind."""
        ...

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, in their order."""
        ...

    @property
    def digest(self) -> str:
        """A digest of the public data that a device has and no plan carries; "" if there are none."""
        ...

    @property
    def description(self) -> str:
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

    def visits(self, algorithm: Algorithm, stated: bool) -> tuple[int, ...]:
        """The activations that each node is to answer; none if no token walks. `stated`: the plan says its own caps."""
        ...

    def check(self, algorithm: Algorithm) -> None:
        """Raises InputError if its parts contradict each other. A device checks this before it computes with them."""
        ...


class Plan(Protocol):
    """What a device reads of a run's plan (`plan.RunPlan`)."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    @property
    def problem(self) -> Any:
        """The public part of the problem (`Public`)."""
        ...

    @property
    def kind(self) -> Kind:
        """Of its problem."""
        ...

    @property
    def algorithm(self) -> Algorithm:
        """The scenario's `algorithm` section."""
        ...

    @property
    def running(self) -> Any:
        """The algorithm with the rounds that the caps of the privacy section leave."""
        ...

    @property
    def stop(self) -> Stop | None:
        """The stopping rule; None if the run makes all its rounds."""
        ...

    @property
    def terms(self) -> Terms | None:
        """What is asked of the gate that may answer most; None if the run has no privacy."""
        ...

    def terms_of(self, node: str) -> Terms | None:
        """What is asked of a node's gate."""
        ...

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, in their order."""
        ...

    @property
    def sites(self) -> dict[str, list[str]]:
        """The nodes of each site, by its name, of a run in two levels; {} of one level."""
        ...

    @property
    def site_of(self) -> dict[str, str]:
        """The site of each node; {} without sites."""
        ...


class ScenarioSections(Protocol):
    """The sections of a scenario that decide the public part of its problem."""

    @property
    def problem(self) -> Any: ...
    @property
    def network(self) -> Network | None: ...
    @property
    def algorithm(self) -> Any: ...
    @property
    def privacy(self) -> Privacy | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def stop(self) -> Stop | None: ...


class DeviceFile(Protocol):
    """The sections of a device's file that are about its data."""

    @property
    def node(self) -> str: ...
    @property
    def data(self) -> Any: ...
    @property
    def labels(self) -> Any: ...
    @property
    def problem(self) -> Any: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def allow(self) -> Allow: ...
    @property
    def tls(self) -> Tls | None: ...
    @property
    def source(self) -> Source | None: ...


class Device(Protocol):
    """What a device holds: its private data, which only its gate reads, and the public part of its problem."""

    name: str  #: its node's name
    kind: ClassVar[str]  #: the name of its kind
    neighbours: ClassVar[bool]  #: whether it exchanges messages with other devices, not only with the coordinator
    until: Vector | None  #: running time, s, until which each reading in its data counts; None: for ever

    @property
    def digest(self) -> str: ...

    @property
    def dimension(self) -> int: ...
    @property
    def public_part(self) -> str:
        """What is public of its data, in a word that is another whenever that is: the data are others then."""
        ...

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan's public part agrees with this device's own."""
        ...

    def remark(self, plan: Plan) -> str:
        """What the device's own log adds to the name of a run that it joins, about its own data; "" if there is
        nothing.
        """
        ...

    def limit(self, plan: Plan) -> int:
        """The bytes of the largest message of a run on this device's edges."""
        ...

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, budget_check: BudgetCheck
    ) -> tuple[Keeping, Gate | None]:
        """Its machine and its gate in a run whose plan it has checked. `run`: the run's id. A site has no gate."""
        ...


class Renewal(Protocol):
    """Brings a device's data up to date."""

    @property
    def device(self) -> Device:
        """The device with the data of the ledger's data version."""
        ...

    def fitting(self, fits: Callable[[Device], None]) -> Device:
        """The device that a run is for: with the data of now, or with those that have come since. Nothing is renewed.

        Raises what `fits` raises of the first.
        """
        ...

    def __call__(self, affordable: bool, agree: Callable[[int], None], fits: Callable[[Device], None]) -> Device:
        """The device with the data that a new run is to have.

        `affordable`: whether the window of its budget has room for answers about new data. `agree` is told the data
        version that the run would have, before anything is renewed; if it raises, nothing is. `fits` raises about a
        device that the run is not for: then its data are not taken either.
        """
        ...

    @property
    def age(self) -> float | None:
        """Seconds of running time since the data of now were read; None if that is not known."""
        ...


S = TypeVar("S", bound=Section)
P = TypeVar("P", bound=Public)
D = TypeVar("D", bound=Device)


class ProblemKind(ABC, Generic[S, P, D]):
    """A kind of problem: its scenario sections S, its public part P, its devices D."""

    name: ClassVar[str]  #: its name in a plan
    #: the name of the kind whose devices take part, in a device's birth; "": its own. A device of rows can be asked for
    #: more than one kind of answer
    of_devices: ClassVar[str] = ""
    sections: ClassVar[tuple[type[Section], ...]]  #: its scenario sections; each has a tag
    public_type: ClassVar[type]  #: the type of its part of a plan
    patterns: ClassVar[tuple[Pattern, ...]]  #: the patterns that its nodes can take part in
    sharing: ClassVar[Sharing]  #: what a node has of the unknowns
    records: ClassVar[bool]  #: whether its data are records, of which one can be replaced; else quantities that change

    @property
    def folder(self) -> str:
        """The name of its folder, and of its file in `broker/simulation/problems/`."""
        return type(self).__module__.split(".")[-2]

    @property
    def devices(self) -> str:
        """The name of the kind whose devices take part."""
        return self.of_devices or self.name

    @property
    def tags(self) -> tuple[str, ...]:
        """The values of `problem.kind` that name its sections."""
        return tuple(str(s.__struct_config__.tag) for s in self.sections)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the algorithms that solve it."""
        return tuple(name for name, declared in ALGORITHMS.items() if self.solved_by(declared))

    def solved_by(self, algorithm: Algorithm | type[Algorithm]) -> bool:
        """Whether an algorithm solves it."""
        return algorithm.pattern in self.patterns and self.sharing in algorithm.sharing

    def check(self, problem: S, algorithm: Algorithm, file: str) -> None:
        """Raises InputError unless the algorithm solves this problem."""
        if not self.solved_by(algorithm):
            tag, known = problem.__struct_config__.tag, " or ".join(self.algorithms)
            raise InputError(f"{file}: algorithm.name: found {algorithm.name}, expected {known} (problem.kind: {tag})")

    def adjacency(self, adjacency: Adjacency, base: Path) -> Adjacency:
        """An adjacency with the files that it names found, relative to `base`, and read. Raises InputError."""
        return adjacency

    def check_questions(self, problem: S, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        """Raises InputError unless a gate can answer what the algorithm asks."""
        return None

    def question(self, problem: P) -> Question:
        """What the public part of a plan asks about a device's data. A kind with several tags says which it is."""
        (tag,) = self.tags
        return Question(tag)

    def fits(self, tag: str, labels: Any) -> bool:
        """Whether a device whose owner declares such labels can be asked about the problem of this tag."""
        return True

    def reveals(self, entry: AllowedProblem, device: D) -> str:
        """What the answers to a question may tell of a device's data, in a few words, from public numbers."""
        return "what its noise does not hide of its data"

    @abstractmethod
    def solved(self, algorithm: Algorithm) -> str:
        """Which problems of this kind an algorithm solves if it is guarded, in a few words, for README's table."""

    @abstractmethod
    def unit(self, algorithm: Algorithm) -> str:
        """The unit of privacy: what its noise hides, in a few words, for README's table."""

    @abstractmethod
    def located(self, problem: S, network: Network | None, networked: bool, base: Path, file: str) -> S:
        """The problem with its relative paths made relative to `base`.

        `networked`: whether its nodes will send messages to each other. Raises InputError if it lacks a network that it
        needs, or has one that it must not have.
        """

    @abstractmethod
    def public(self, sections: ScenarioSections, file: str) -> Public:
        """The public part of a scenario's problem. Raises InputError if the data or the network do not fit it."""

    @abstractmethod
    def device(self, owner: DeviceFile, path: str) -> Device:
        """A real device with its own data, read now. Raises InputError if they are wrong. `path`: the device's file."""

    def gate(self, device: D, plan: Plan, noise: NoiseSource, budget_check: BudgetCheck) -> Gate:
        """The gate, in a run of this kind, of a device of the kind `devices`. Raises InputError if the plan's terms
        cannot be met.
        """
        raise InputError(f"{device.name}: found a plan for {self.name}, expected one for {device.kind}")

    def feed(self, owner: DeviceFile, path: str) -> Feed:
        """What makes values and devices of the contents of the owner's source. Raises InputError as `device` does."""
        raise InputError(f"{path}: source: found a section, expected none ({self.name})")

    @abstractmethod
    def outcome(self, device: D, state: Path) -> Outcome:
        """The function that stores a run's outcome on this device, in the directory `state`."""

    def site_outcome(self, device: D, outcome: dict[str, Vector], problem: P, now: float) -> SiteOutcome:
        """An outcome for other programs on the site: vectors of few numbers, by name.

        problem: that of the run (`Public`). now: the time of the machine's clock, s.
        """
        few = sum(v.size for v in outcome.values()) <= FEW
        return SiteOutcome(
            {"model": {name: v.tolist() for name, v in outcome.items()} if few else None}, archive_of(outcome)
        )

    def own_report(self, device: D, state: Path) -> list[str]:
        """What the last outcome in `state` is worth at the device's own data: lines for its owner alone.

        Raises InputError if there is no outcome, or this kind has nothing to say of one.
        """
        raise InputError(f"{device.name}: found a device with {self.name}, expected a zone controller")

    @abstractmethod
    def data_words(self, data: Any) -> str:
        """The data section of a device's file, in a few words."""

    @abstractmethod
    def hidden(self, owner: DeviceFile, device: D, adjacency: Adjacency) -> list[str]:
        """What the owner's adjacency hides, in words, from public numbers. One line an entry."""

    @abstractmethod
    def on_devices(self, problem: S) -> str | None:
        """Why real devices cannot solve this problem, whose data are with the program that makes the plan; None if they
        can.
        """

    def tests(self, problem: S, public: P) -> Tests | None:
        """What tells how good a model is on public rows, from a scenario's problem and its public part; None if nothing
        does. Raises InputError.
        """
        return None

    def left_out(self, problem: S) -> list[str]:
        """What its data hold and the problem has not, a line each."""
        return []

    def check_answers(self, plan: Plan) -> None:
        """Raises InputError if a gate could not answer what the plan asks, which follows from public numbers."""
        return None

    def warning(self, plan: Plan, source: str) -> str | None:
        """What to say before a run that is likely not what was meant; None if there is nothing. `source`: as
        `self.source` says.
        """
        return None

    def among(self, plan: P, present: Sequence[str]) -> P:
        """The public part of the same problem without the nodes that are not there. Raises InputError if it needs
        them.
        """
        raise InputError(f"found {', '.join(present)} there, expected {', '.join(plan.nodes)}")

    def check_data(self, problem: S, public: P) -> None:
        """Raises InputError unless what simulated nodes hold, and the public part does not, is whole."""
        return None

    def sites(self, problem: P) -> dict[str, list[str]]:
        """The nodes of each site, by its name, if the problem deals them to sites; {}: it does not."""
        return {}

    def periods(self, problem: P) -> Periods | None:
        """Those that a problem is planned over; None of a problem without any."""
        return None

    def lasting(self, problem: P) -> P:
        """What of a problem is the same in all runs by which it is carried on."""
        return problem

    def carried_on(self, problem: P, course: Course, began: float) -> P:
        """A problem over periods from the course's period on. began: when its first day began, s since 1970."""
        return problem

    def source(self, problem: S) -> str:
        """Where a coordinator finds the public data that no plan carries; "" if there are none."""
        return ""


Kind = ProblemKind[Any, Any, Any]  #: whichever
