"""What an algorithm declares of itself. The rest of the program reads it here, and asks no plan for its type or name.

An algorithm is one file of this folder: a struct that extends `Star`, `Walk` or `Rounds`, which is the scenario's
`algorithm` section at the same time, and the machines it makes. `registry` finds the file. Everything that a
coordinator, a recorder, a report, the README's table, the league or the common tests must know of it stands in the
struct; what is left undeclared is refused when the file is found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta, Struct
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.routes import visits
from hushgrid.kernels.ranges import FAR, MOST, Count, Node

if TYPE_CHECKING:
    from hushgrid.kernels.patterns import neighbours, star
    from hushgrid.kernels.patterns.token import Place as TokenPlace
    from hushgrid.kernels.patterns.token import TokenNode

Variant = Literal["guarded", "published", "none"]
Pattern = Literal["star", "token", "neighbours"]
Question = Literal["gradient", "minimiser", "data"]
#: Where the noise of a published variant comes from: of the paper's law at the scales of the privacy section; of scales
#: that the algorithm's own section states, without an epsilon; from the gate, at its full price; None: there is none.
Source = Literal["paper", "scales", "gate"]
Way = Literal["random", "hamiltonian"] | Annotated[tuple[Node, ...], Meta(max_length=MOST)]  #: of a token
Keys = Mapping[str, Any]  #: of a scenario's section


class Race(Struct, frozen=True, kw_only=True):
    """A line of the league's table: one way of an algorithm, and what is tuned of it."""

    title: str  #: of the line
    keys: Keys = {}  #: of the section, the same in every run; without name and rounds
    grid: Sequence[Keys]  #: of the section, of which the best are chosen


class Algorithm(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. Raises InputError if keys contradict each other."""

    title: ClassVar[str]  #: as a report calls it
    paper: ClassVar[str]  #: authors, title, where it appeared, algorithm number
    claim: ClassVar[str]  #: whether the published privacy claim holds, for the README's table
    pattern: ClassVar[Pattern]
    unit: ClassVar[str] = "rounds"  #: of `rounds`
    #: Keys, without name and rounds, by variant: short runs that converge on a small problem, one at least of each variant
    #: that there is. Tests, the golden record and docs run them.
    examples: ClassVar[Mapping[Variant, Sequence[Keys]]]
    far: ClassVar[float] = FAR  #: how many times its bound of stability a guarded run may step
    regularized: ClassVar[bool] = True  #: whether it minimises sum_i f_i(x) + n r(x) over a box, or sum_i f_i(x) alone
    published: ClassVar[Source | None] = None
    published_mechanisms: ClassVar[tuple[str, ...]] = ("laplace", "gaussian")
    own: ClassVar[tuple[str, ...]] = ("x",)  #: vectors of a node's state that are recorded; its iterate is the first
    #: Of the privacy section, the default first: what its nodes may be protected by.
    modes: ClassVar[tuple[str, ...]] = ("objective", "input", "output", "output-projected")
    #: The stopping rule, tolerance and patience, of a scenario that names none; None: all rounds are done.
    stopping: ClassVar[tuple[float, int] | None] = None
    grid: ClassVar[Sequence[Keys]] = ()  #: what the league tunes; empty: nothing, it runs the guarded examples
    races: ClassVar[Sequence[Race]] = ()  #: its lines in the league, if they are not one of its title and its grid
    published_races: ClassVar[Mapping[str, Keys]] = {}  #: the same as its paper has it: keys by the title of the line

    variant: Variant = "guarded"  #: whose noise: guarded (the gate's own), published (the paper's, for study) or none
    rounds: Count  #: rounds, or activations of a token

    @classmethod
    def raced(cls) -> Sequence[Race]:
        """Its lines in the league."""
        return cls.races or (Race(title=cls.title, grid=cls.grid or cls.examples["guarded"]),)

    @property
    def name(self) -> str:
        """Its name in a scenario and in a plan."""
        return str(self.__struct_config__.tag)

    # --- what it asks of the gate ---

    @property
    def minimizes(self) -> bool:
        """Whether its nodes ask their gates for private minimisers, not for gradients."""
        return False

    @property
    def by_output(self) -> bool:
        """Whether these minimisers are private by output perturbation, not by objective perturbation."""
        return False

    @property
    def gated(self) -> bool:
        """Whether its noise is the gate's own, at its full price."""
        return self.variant == "guarded" or (self.variant == "published" and self.published == "gate")

    @property
    def claims(self) -> bool:
        """Whether a scenario states an epsilon for it."""
        return self.variant == "guarded" or (self.variant == "published" and self.published in ("paper", "gate"))

    def asks(self, mode: str = "") -> Question:
        """What its nodes ask of gates that answer with noise. `mode`: of the privacy section."""
        return "minimiser" if self.minimizes else "data" if mode == "input" else "gradient"

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        """Answers of a node at most, and rounds after which the run ends. `most`: the plan's cap, if it has one.

        `visits`: activations that a node is to answer, of a token's walk. Raises InputError if no round is left.
        """
        raise NotImplementedError

    def visits(self, nodes: int, route: Sequence[int]) -> int:
        """Activations that a node is to answer, of the node that has most; 0 if no token walks."""
        return 0

    @property
    def sent(self) -> int:
        """Vectors of length d in its largest message."""
        return 1

    @property
    def walks(self) -> Way | None:
        """The way of its token; None if there is none."""
        return None

    def scaled(self, i: int, L: float, nodes: int) -> tuple[float, float]:
        """Of the published noise: its step alpha beta at node i, and R, sigma_k^2 = R sigma_{k+1}^2."""
        return 0.0, 1.0

    def quiet(self) -> Self:
        """The same updates with exact answers: what a guarded run is whose noise is zero."""
        return replace(self, variant="none")

    def until(self, rounds: int) -> Self:
        """Itself with the rounds that a plan's cap leaves."""
        return replace(self, rounds=rounds)

    def curvature(self, i: int, k: int, neighbours: Sequence[int]) -> float:
        """The quadratic of node i's question k, a private minimiser: what is added to the curvature of f_i."""
        raise NotImplementedError

    # --- what bounds its parameters ---

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """Its step over the public bound below which it is stable; None if there is no bound.

        L: the smoothness constant of each node. degree: the largest in the graph.
        """
        raise NotImplementedError

    def check(self, L: Sequence[float], degree: int) -> None:
        """Raises InputError if the paper's own conditions refuse its parameters."""

    # --- what is said of it ---

    def finding(self, mode: str, nodes: int) -> str:
        """Why the published variant makes no promise. `mode`: of the privacy section."""
        raise NotImplementedError

    def published_noise(self, mode: str) -> str:
        """A report's sentence on the published variant's noise."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """What a report adds to its sentences on the noise; "" where there is nothing to add."""
        return ""

    # --- how noise carries, for the verdict on an answer ---

    def carried(self, i: int, answers: int, L: float, neighbours: Sequence[int]) -> float:
        """sum_k tau_k^2 of node i's answers: tau_k is the step by which answer k, a gradient, enters the node's own copy."""
        return answers * self.tau(i, L) ** 2

    def tau(self, i: int, L: float) -> float:
        """The step of `carried`, if all answers have the same one."""
        raise NotImplementedError


class Star(Algorithm, frozen=True, kw_only=True):
    """Rounds around a coordinator that averages."""

    pattern: ClassVar[Pattern] = "star"
    own: ClassVar[tuple[str, ...]] = ("mean", "lam")  #: the iterate z_p (n,), and a vector (m,) of what is shared
    closing: ClassVar[int] = 0  #: exchanges with every member after the last round
    exact: ClassVar[bool] = False  #: whether a member solves its local problem exactly; else it asks for gradients
    #: What the coordinator measures of a round, `measured` of its machine: columns of the history.
    figures: ClassVar[tuple[str, ...]] = ()

    @property
    def per_round(self) -> int:
        """Answers of a node in a round."""
        return 1

    @property
    def answers(self) -> int:
        """Answers of a node over the whole run."""
        return self.rounds * self.per_round

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        E = self.per_round
        needed = 1 if mode == "input" else self.answers
        answers = min(most or needed, needed)
        if answers > MOST:
            raise InputError(
                f"algorithm.rounds: found {self.rounds} with {E} local_updates, expected at most {MOST} answers"
            )
        rounds = self.rounds if mode == "input" else min(self.rounds, answers // E)
        if rounds < 1:
            raise InputError(f"privacy.answers: found {most}, expected at least local_updates = {E}, one round")
        return answers, rounds

    def gain(self, t: int, L: float, epsilon: float) -> float:
        """The step by which an answer of round t enters z_p."""
        raise NotImplementedError

    def agent(self, at: star.Place) -> star.StarMember:
        """A member's machine."""
        raise NotImplementedError

    def server(self, at: star.Centre) -> star.StarCentre:
        """The coordinator's machine."""
        raise NotImplementedError


class Walk(Algorithm, frozen=True, kw_only=True):
    """A token walks; the node that has it is active. A subclass has the key `walk`."""

    pattern: ClassVar[Pattern] = "token"
    unit: ClassVar[str] = "activations"
    token: ClassVar[tuple[str, ...]]  #: its vectors; the common iterate is the first
    if TYPE_CHECKING:
        walk: Way  #: a field of every subclass, at its own place: the order of fields is that of a plan's bytes

    def visits(self, nodes: int, route: Sequence[int]) -> int:
        given = () if isinstance(self.walk, str) else self.walk
        return visits(nodes, given or route, self.rounds)

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        # Nobody knows in advance how often a random walk visits a node; beyond the cap the token goes on unchanged.
        return min(most or visits, self.rounds if self.walk == "random" else visits), self.rounds

    @property
    def sent(self) -> int:
        return len(self.token)

    @property
    def walks(self) -> Way | None:
        return self.walk

    def agent(self, at: TokenPlace) -> TokenNode:
        """A node's machine."""
        raise NotImplementedError


class Rounds(Algorithm, frozen=True, kw_only=True):
    """Synchronous rounds among neighbours."""

    pattern: ClassVar[Pattern] = "neighbours"
    messages: ClassVar[int] = 1  #: of a node in a round
    vectors: ClassVar[int] = 1  #: of length d, in a message
    #: Whether the iterate is what a node says, not what it keeps.
    iterate_is_sent: ClassVar[bool] = False
    #: Whether a node asks its gate in the step after a round's message; else before it, and the message has the answer.
    asks_after: ClassVar[bool] = False

    @property
    def answers(self) -> int:
        """Answers of a node over the whole run."""
        return self.rounds

    @property
    def sent(self) -> int:
        return self.vectors

    def answered(self, rounds: int) -> int:
        """Answers of a node in the first `rounds` rounds."""
        return self.until(rounds).answers

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        # Synchronous rounds end with the one in which the cap is reached.
        answers = max(min(most or self.answers, self.answers), 1)
        return answers, bisect_right(range(1, self.rounds + 1), answers, key=self.answered)

    @property
    def said(self) -> tuple[str, ...]:
        """Names of a round's messages in a trajectory, if they stand there."""
        return ()

    def agent(self, at: neighbours.Place) -> neighbours.Neighbour:
        """A node's machine."""
        raise NotImplementedError
