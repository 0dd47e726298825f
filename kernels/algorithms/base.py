"""What an algorithm declares. The rest of the program reads it here and never compares types or names.

An algorithm is one file of this folder, which `registry` finds: a struct that extends `Star`, `Walk` or `Rounds`, and the
machines that it makes. The struct is the scenario's `algorithm` section, and has all that a coordinator, a recorder, a
report, the README's table, the league and the common tests must know. A file that leaves a declaration out is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hushgrid.kernels import walks
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.ranges import FAR, MOST, Count, Gossip, Node

if TYPE_CHECKING:
    from hushgrid.kernels.patterns import masked, neighbours, star
    from hushgrid.kernels.patterns.token import Place as TokenPlace
    from hushgrid.kernels.patterns.token import TokenNode

Variant = Literal["guarded", "published", "none"]
Pattern = Literal["star", "token", "neighbours"]
#: What a node has of the unknowns. copies: its own copy of all of x. parts: a vector of its own, of which it shares some
#: entries with others. addends: none; its vector is a part of their sum.
Sharing = Literal["copies", "parts", "addends"]
Question = Literal["gradient", "minimiser", "data", "statistic"]
BOTH = ("laplace", "gaussian")  #: mechanisms of a privacy section
#: Where the noise of a published variant comes from. paper: the paper's law, at the scales of the privacy section.
#: scales: scales that the algorithm's own section states, without an epsilon. gate: the gate, at its full price.
Source = Literal["paper", "scales", "gate"]
Way = (
    Literal["random", "metropolis", "hamiltonian"] | Annotated[tuple[Node, ...], Meta(max_length=MOST)]
)  #: a token's walk
CHANCE = {"random": walks.simple, "metropolis": walks.metropolis}  #: the weights of a walk that is left to chance
Keys = Mapping[str, Any]  #: keys of a scenario's section, with their values


class Race(Struct, frozen=True, kw_only=True):
    """A line of the league's table: one setting of an algorithm, and the keys that are tuned."""

    title: str  #: the line's title
    keys: Keys = {}  #: keys that are the same in every run; without name and rounds
    #: candidates: the league tunes the keys in which they differ, and begins at the one in the middle
    grid: Sequence[Keys]


class Finish(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rounds after the last answer, in which nodes average what they have: no data, no epsilon."""

    gossip: Gossip  #: how many; in each a node's x becomes sum_j W_ij x_j, W Metropolis weights


class Algorithm(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. Raises InputError if keys contradict each other."""

    title: ClassVar[str]  #: the algorithm's name in a report
    paper: ClassVar[str]  #: authors, title, where it appeared, algorithm number
    claim: ClassVar[str]  #: whether the published privacy claim holds, for the README's table
    pattern: ClassVar[Pattern]
    unit: ClassVar[str] = "rounds"  #: what the key `rounds` counts
    #: Keys, without name and rounds, by variant: short runs that converge on a small problem, at least one for each
    #: variant of the algorithm. Tests, the golden record and docs run them.
    examples: ClassVar[Mapping[Variant, Sequence[Keys]]]
    far: ClassVar[float] = FAR  #: the largest `step_ratio` of a guarded run
    networked: ClassVar[bool] = True  #: whether nodes send messages to each other, not to the coordinator alone
    of: ClassVar[tuple[Sharing, ...]] = ("copies",)  #: the problems that it solves, by what a node has of the unknowns
    #: What it minimises. box: sum_i f_i(x) over a box, if the problem has one. all: sum_i f_i(x) + n r(x) over a box.
    constrained: ClassVar[Literal["no", "box", "all"]] = "all"
    lone: ClassVar[str] = ""  #: with which of its parameters it takes a box but no regularizer, if there are such
    published: ClassVar[Source | None] = None  #: None: there is no published variant
    published_mechanisms: ClassVar[tuple[str, ...]] = BOTH
    own: ClassVar[tuple[str, ...]] = ("x",)  #: vectors of a node's state that are recorded, its iterate first
    #: The modes of the privacy section that its nodes can be protected by, the default first.
    modes: ClassVar[tuple[str, ...]] = ("objective",)
    stopping: ClassVar[tuple[float, int] | None] = None  #: (tolerance, patience) if a scenario says none; None: no rule
    grid: ClassVar[Sequence[Keys]] = ()  #: what the league tunes; empty: it tunes nothing and runs the guarded examples
    races: ClassVar[Sequence[Race]] = ()  #: its lines in the league; empty: one line with its title and its grid
    tuned: ClassVar[str] = ""  #: the key that sets how far an answer moves, which `hushgrid plan` tries; "": none

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

    def by_output(self, mechanism: str) -> bool:
        """Whether these minimisers are private by output perturbation, as all are under Gaussian noise.

        Otherwise by objective perturbation, whose noise is Laplace's. `mechanism`: that of the privacy section.
        """
        return mechanism == "gaussian"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that a privacy section may name."""
        return self.published_mechanisms if self.variant == "published" else BOTH

    @property
    def gated(self) -> bool:
        """Whether the gate makes its noise and counts its full price."""
        return self.variant == "guarded" or (self.variant == "published" and self.published == "gate")

    def unconstrained(self, l1: float, l2: float, box: float | None) -> str | None:
        """What of a problem it cannot solve, regularizer or box; None if it solves it. l1, l2: of r(x)."""
        if (l1 or l2) and self.constrained != "all":
            return "regularizer"
        return "box" if box and self.constrained == "no" else None

    @property
    def claims(self) -> bool:
        """Whether a scenario states an epsilon for it."""
        return self.variant == "guarded" or (self.variant == "published" and self.published in ("paper", "gate"))

    @property
    def unmasked(self) -> str | None:
        """Why its nodes' answers may not be masked, so that only sums of them are seen; None: they may.

        What is masked must be the gate's answer at a point that every node was sent. Else a sum is no function of the sum
        of the answers, and a node is protected by its own share of the noise alone.
        """
        return f"{self.name} sends more than a sum of answers at one point: fedavg with local_updates 1 can be masked"

    def asks(self, mode: str = "") -> Question:
        """What its nodes ask of gates that answer with noise. `mode`: that of the privacy section."""
        return "minimiser" if self.minimizes else "data" if mode == "input" else "gradient"

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        """The most answers of a node, and the rounds after which the run ends.

        `most`: the plan's cap, if it has one. `mode`: that of the privacy section. `visits`: activations that a node is
        to answer on a token's walk. Raises InputError if the cap leaves no round.
        """
        raise NotImplementedError

    def visits(self, graph: Graph, route: Sequence[int], stated: bool) -> tuple[int, ...]:
        """The activations that each node is to answer; none if no token walks. `stated`: the plan says its own caps."""
        return ()

    @property
    def sent(self) -> int:
        """The number of vectors of length d in its largest message."""
        return 1

    @property
    def gossip(self) -> int:
        """The rounds of averaging after the last answer."""
        return 0

    @property
    def walks(self) -> Way | None:
        """The walk of its token; None if it has no token."""
        return None

    def scaled(self, i: int, L: float, nodes: int) -> tuple[float, float]:
        """Of the published noise: the step alpha beta at node i, and the ratio R with sigma_k^2 = R sigma_{k+1}^2.

        L: the smoothness constant of f_i. nodes: their number.
        """
        return 0.0, 1.0

    def quiet(self) -> Self:
        """The same updates with exact answers: a guarded run whose noise is zero."""
        return replace(self, variant="none")

    def until(self, rounds: int) -> Self:
        """The same algorithm with another number of rounds, such as a plan's cap leaves."""
        return replace(self, rounds=rounds)

    def curvature(self, i: int, k: int, neighbours: Sequence[int]) -> float:
        """The curvature that question k of node i, for a private minimiser, adds to that of f_i."""
        raise NotImplementedError

    @property
    def by_convexity(self) -> bool:
        """Whether its step is a function of mu, of which every f_i must have some: f_i - mu/2 |x|^2 is convex."""
        return False

    # --- what bounds its parameters ---

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """Its step divided by the public bound below which it is stable; None if there is no bound.

        L: the smoothness constant of each node. degree: the largest degree in the graph.
        """
        raise NotImplementedError

    def check(self, L: Sequence[float], degree: int) -> None:
        """Raises InputError if its parameters violate the paper's own conditions. L, degree: as in `step_ratio`."""

    # --- what is said of it ---

    def finding(self, mode: str, nodes: int, sharing: Sharing) -> str:
        """Why the published variant makes no promise. `mode`: of the privacy section. nodes: their number."""
        raise NotImplementedError

    def published_noise(self, mode: str) -> str:
        """A report's sentence on the published variant's noise."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """What a report adds to its sentences on the noise; "" if there is nothing to add."""
        return ""

    # --- how noise carries, for the verdict on an answer ---

    def carried(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        """sum_k tau_k^2 over node i's answers k, each a gradient that enters the node's own copy with step tau_k.

        L: the smoothness constant of f_i. neighbours: the nodes beside i. epsilon: of one answer. alpha: every f_i is
        alpha-strongly convex.
        """
        return answers * self.tau(i, L) ** 2

    def tau(self, i: int, L: float) -> float:
        """The step tau of `carried`, if all answers of node i have the same one."""
        raise NotImplementedError


class Star(Algorithm, frozen=True, kw_only=True):
    """Rounds around a coordinator that averages."""

    pattern: ClassVar[Pattern] = "star"
    networked: ClassVar[bool] = False
    own: ClassVar[tuple[str, ...]] = ("mean", "lam")  #: the iterate z_p (n_p,), and a vector (m_p,) over shared entries
    closing: ClassVar[int] = 0  #: exchanges with every member after the last round
    exact_steps: ClassVar[bool] = (
        False  #: whether a member solves its local problem exactly; else it asks for gradients
    )
    warm: ClassVar[bool] = (
        False  #: whether a run can begin where another one has ended, at no cost: from public state alone
    )
    #: Whether a member that begins at the flat start must be known to the coordinator, because both keep one dual.
    both_remember: ClassVar[bool] = False
    #: What the coordinator measures of a round, `measured` of its machine: columns of the history.
    figures: ClassVar[tuple[str, ...]] = ()

    @property
    def per_round(self) -> int:
        """The answers of a node in one round."""
        return 1

    def beside_constants(self) -> Self:
        """The same algorithm in a run in which entries are held (`Centre.held`)."""
        return self

    @property
    def answers(self) -> int:
        """The answers of a node over the whole run."""
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

    def gain(self, t: int, L: float, epsilon: float, alpha: float = 0.0) -> float:
        """The step with which an answer of round t enters z_p.

        L: the largest smoothness constant of an f_p. epsilon: of one answer. alpha: every f_p is alpha-strongly convex.
        """
        raise NotImplementedError

    def carried(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        rounds = range(1, answers // self.per_round + 1)
        return self.per_round * sum(self.gain(t, L, epsilon, alpha) ** 2 for t in rounds)

    def paper_sensitivity(self, mode: str, moved: float, gain: float) -> float:
        """The sensitivity for which a published variant makes the noise of an answer about records.

        `mode`: that of the privacy section. `moved`: how far one record replaced moves a gradient. `gain`: the step with
        which the answer enters z_p.
        """
        raise NotImplementedError

    def leads(self, constrained: bool) -> bool:
        """Whether its coordinator steps on from the members' mean, so that w is the iterate. constrained: by r or a box."""
        return False

    def agent(self, at: star.Place) -> star.StarMember:
        """A member's machine."""
        raise NotImplementedError

    def server(self, at: star.Centre) -> star.StarCentre:
        """The coordinator's machine."""
        raise NotImplementedError

    def masked_server(self, at: masked.Centre) -> masked.MaskedCentre:
        """The coordinator's machine where only sums are seen (`unmasked`); all members' is `MaskedMember`."""
        raise NotImplementedError


class Walk(Algorithm, frozen=True, kw_only=True):
    """A token walks, and the node that has it is active. A subclass has the key `walk`."""

    pattern: ClassVar[Pattern] = "token"
    unit: ClassVar[str] = "activations"
    token: ClassVar[tuple[str, ...]]  #: names of the token's vectors, the common iterate first
    if TYPE_CHECKING:
        walk: Way  #: a field of every subclass, at its own place: the order of fields is that of a plan's bytes

    def visits(self, graph: Graph, route: Sequence[int], stated: bool) -> tuple[int, ...]:
        if self.walk not in CHANCE:
            return walks.along(route if isinstance(self.walk, str) else self.walk, graph.n, self.rounds)
        # How often a random walk visits a node is not known in advance. At the cap the token goes on unchanged.
        return (self.rounds,) * graph.n if stated else walks.caps(CHANCE[self.walk](graph), self.rounds)

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        return min(most or visits, visits), self.rounds

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
    messages: ClassVar[int] = 1  #: messages of a node in a round
    vectors: ClassVar[int] = 1  #: vectors of length d in a message
    #: Whether the node's iterate is in the messages that it sends, not in its state.
    iterate_is_sent: ClassVar[bool] = False
    #: Whether a node asks its gate after it has sent a round's message. Otherwise it asks before, and the message has
    #: the answer.
    asks_after: ClassVar[bool] = False

    finish: Finish | UnsetType = UNSET  #: rounds of averaging after the last answer [none]

    @property
    def gossip(self) -> int:
        return 0 if self.finish is UNSET else self.finish.gossip

    @property
    def answers(self) -> int:
        """The answers of a node over the whole run."""
        return self.rounds

    @property
    def sent(self) -> int:
        return self.vectors

    def answered(self, rounds: int) -> int:
        """The answers of a node in the first `rounds` rounds."""
        return self.until(rounds).answers

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        # Synchronous rounds end with the one in which the cap is reached.
        answers = max(min(most or self.answers, self.answers), 1)
        return answers, bisect_right(range(1, self.rounds + 1), answers, key=self.answered)

    @property
    def said(self) -> tuple[str, ...]:
        """Names of a round's messages in a recorded trajectory; empty if they are not recorded."""
        return ()

    def agent(self, at: neighbours.Place) -> neighbours.Neighbour:
        """A node's machine."""
        raise NotImplementedError
