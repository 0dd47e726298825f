"""What an algorithm declares. The rest of the program reads it here and never compares types or names.

An algorithm is one file of this folder, which `registry` finds: a struct that extends `Star`, `Walk` or `Rounds`, and
the machines that it makes. The struct is the scenario's `algorithm` section, and has all that a machine, a plan and a
gate need. A file that leaves a declaration out is refused. What a single reader wants stands beside that reader, by the
algorithm's name and with a default: the league's lines (lab/studies/lines.py), the key that `hushgrid plan` tunes
(lab/planning/choices.py), short examples (lab/examples.py), a report's sentences (broker/report/claims.py).
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
from hushgrid.kernels.types import DocumentView

if TYPE_CHECKING:
    from hushgrid.kernels.patterns import masked, neighbours, star
    from hushgrid.kernels.patterns import token as tokens

Variant = Literal["guarded", "published", "none"]
Pattern = Literal["star", "token", "neighbours"]
#: What a node has of the unknowns. copies: its own copy of all of x. parts: a vector of its own, of which it shares
#: some entries with others. addends: none; its vector is a part of their sum.
Sharing = Literal["copies", "parts", "addends"]
Question = Literal["gradient", "minimiser", "data", "statistic"]
#: What is minimised. no: sum_i f_i(x). box: that over a box, if the problem has one. all: sum_i f_i(x) + n r(x) over a
#: box.
Constrained = Literal["no", "box", "all"]
BOTH = ("laplace", "gaussian")  #: mechanisms of a privacy section
UNITS: Mapping[Pattern, str] = {
    "star": "rounds",
    "token": "activations",
    "neighbours": "rounds",
}  #: what `rounds` counts
#: The walk of a token.
Way = Literal["random", "metropolis", "hamiltonian"] | Annotated[tuple[Node, ...], Meta(max_length=MOST)]
CHANCE = {"random": walks.simple, "metropolis": walks.metropolis}  #: the weights of a walk that is left to chance
Keys = DocumentView  #: keys of a scenario's section, with their values


class Finish(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Rounds after the last answer, in which nodes average what they have: no data, no epsilon."""

    gossip: Gossip  #: how many; in each a node's x becomes sum_j W_ij x_j, W Metropolis weights


class Published:
    """The noise of a published variant: for study, and refused by devices.

    source: paper: the paper's law, at the scales of the privacy section. scales: scales that the algorithm's own
    section states, without an epsilon. gate: the gate, at its full price.
    """

    def __init__(self, source: Literal["paper", "scales", "gate"], mechanisms: tuple[str, ...] = BOTH) -> None:
        self.source, self.mechanisms = source, mechanisms

    def step_and_ratio(self, algorithm: Any, i: int, L: float, nodes: int) -> tuple[float, float]:
        """The step alpha beta at node i, and the ratio R with sigma_k^2 = R sigma_{k+1}^2.

        L: the smoothness constant of f_i. nodes: their number.
        """
        return 0.0, 1.0

    def sensitivity(self, mode: str, moved: float, step: float) -> float:
        """The sensitivity for which the noise of an answer about records is made, around a coordinator.

        `mode`: that of the privacy section. `moved`: how far one record replaced moves a gradient. `step`: with which
        the answer enters z_p.
        """
        raise NotImplementedError


class Algorithm(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section, in the paper's symbols. Raises InputError if keys contradict each other."""

    title: ClassVar[str]  #: the algorithm's name in a report
    paper: ClassVar[str]  #: authors, title, where it appeared, algorithm number
    pattern: ClassVar[Pattern]
    sharing: ClassVar[tuple[Sharing, ...]] = ("copies",)  #: the problems that it solves
    constrained: ClassVar[Constrained] = "all"
    #: A key and the most that it may be: beyond it there may be a box but no regularizer.
    box_only_with: ClassVar[tuple[str, int] | None] = None
    recorded: ClassVar[tuple[str, ...]] = ("x",)  #: vectors of a node's state that are recorded, its iterate first
    published: ClassVar[Published | None] = None  #: None: there is no published variant
    #: The modes of the privacy section that its nodes can be protected by, the default first.
    modes: ClassVar[tuple[str, ...]] = ("objective",)
    stopping: ClassVar[tuple[float, int] | None] = None  #: (tolerance, patience) if a scenario says none; None: no rule
    max_step_ratio: ClassVar[float] = FAR  #: the largest `step_ratio` of a guarded run

    variant: Variant = "guarded"  #: whose noise: guarded (the gate's own), published (the paper's, for study) or none
    rounds: Count  #: rounds, or activations of a token

    @property
    def name(self) -> str:
        """Its name in a scenario and in a plan."""
        return str(self.__struct_config__.tag)

    # --- what it asks of the gate ---

    def asks(self, mode: str = "") -> Question:
        """What its nodes ask of gates that answer with noise. `mode`: that of the privacy section."""
        return "data" if mode == "input" else "gradient"

    def by_output(self, mechanism: str) -> bool:
        """Whether private minimisers are private by output perturbation, as all are under Gaussian noise.

        Otherwise by objective perturbation, whose noise is Laplace's. `mechanism`: that of the privacy section.
        """
        return mechanism == "gaussian"

    def curvature(self, i: int, k: int, neighbours: Sequence[int]) -> float:
        """The curvature that question k of node i, for a private minimiser, adds to that of f_i."""
        raise NotImplementedError

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        """The most answers of a node, and the rounds after which the run ends.

        `most`: the plan's cap, if it has one. `mode`: that of the privacy section. `visits`: activations that a node is
        to answer on a token's walk. Raises InputError if the cap leaves no round.
        """
        raise NotImplementedError

    @property
    def unmasked(self) -> str | None:
        """Why its nodes' answers may not be masked, so that only sums of them are seen; None: they may.

        What is masked must be the gate's answer at a point that every node was sent. Else a sum is no function of the
        sum of the answers, and a node is protected by its own share of the noise alone.
        """
        return f"{self.name} sends more than a sum of answers at one point: fedavg with local_updates 1 can be masked"

    # --- what bounds its parameters ---

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """Its step divided by the public bound below which it is stable; None if there is no bound.

        L: the smoothness constant of each node. degree: the largest degree in the graph.
        """
        raise NotImplementedError

    def check(self, L: Sequence[float], degree: int, convexity: float = 0.0) -> None:
        """Raises InputError if its parameters violate the paper's own conditions.

        L, degree: as in `step_ratio`. convexity: every f_i - convexity/2 |x|^2 is convex, as far as is known.
        """

    # --- how noise carries, for the verdict on an answer ---

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        """The sum of the squared steps with which node i's answers, each a gradient, enter its own copy.

        L: the smoothness constant of f_i; around a coordinator the largest. neighbours: the nodes beside i. epsilon: of
        one answer. alpha: every f_i is alpha-strongly convex.
        """
        return answers * self.step_of_answer(i, 1, L, epsilon, alpha) ** 2

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        """The step of answer k of node i; around a coordinator, of the answers of round k. Else as in `noise_gain`."""
        raise NotImplementedError


class Star(Algorithm, frozen=True, kw_only=True):
    """Rounds around a coordinator that averages."""

    pattern: ClassVar[Pattern] = "star"
    #: The iterate z_p (n_p,), and a vector (m_p,) over the shared entries.
    recorded: ClassVar[tuple[str, ...]] = ("mean", "lam")
    #: What the coordinator measures of a round, `measured` of its machine: columns of the history.
    figures: ClassVar[tuple[str, ...]] = ()
    #: Whether a member that begins at the flat start must be known to the coordinator, because both keep one dual.
    both_remember: ClassVar[bool] = False

    @property
    def per_round(self) -> int:
        """The answers of a node in one round."""
        return 1

    def beside_constants(self) -> Self:
        """The same algorithm in a run in which entries are held (`ServerContext.held`)."""
        return self

    def server_holds_iterate(self, constrained: bool) -> bool:
        """Whether its coordinator steps on from the members' mean, so that w is the iterate. constrained: by r or a
        box.
        """
        return False

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        E = self.per_round
        needed = 1 if mode == "input" else self.rounds * E
        answers = min(most or needed, needed)
        if answers > MOST:
            raise InputError(
                f"algorithm.rounds: found {self.rounds} with {E} local_updates, expected at most {MOST} answers"
            )
        rounds = self.rounds if mode == "input" else min(self.rounds, answers // E)
        if rounds < 1:
            raise InputError(f"privacy.answers: found {most}, expected at least local_updates = {E}, one round")
        return answers, rounds

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        rounds = range(1, answers // self.per_round + 1)
        return self.per_round * sum(self.step_of_answer(i, t, L, epsilon, alpha) ** 2 for t in rounds)

    def agent(self, context: star.NodeContext) -> star.StarMember:
        """A member's machine."""
        raise NotImplementedError

    def server(self, context: star.ServerContext) -> star.StarCentre:
        """The coordinator's machine."""
        raise NotImplementedError

    def masked_server(self, context: masked.ServerContext) -> masked.MaskedCentre:
        """The coordinator's machine where only sums are seen (`unmasked`); all members' is `MaskedMember`."""
        raise NotImplementedError


class Walk(Algorithm, frozen=True, kw_only=True):
    """A token walks, and the node that has it is active. A subclass has the key `walk`."""

    pattern: ClassVar[Pattern] = "token"
    token: ClassVar[tuple[str, ...]]  #: names of the token's vectors, the common iterate first
    if TYPE_CHECKING:
        walk: Way  #: a field of every subclass, at its own place: the order of fields is that of a plan's bytes

    def visits(self, graph: Graph, route: Sequence[int], stated: bool) -> tuple[int, ...]:
        """The activations that each node is to answer. `stated`: the plan says its own caps."""
        if self.walk not in CHANCE:
            return walks.along(route if isinstance(self.walk, str) else self.walk, graph.n, self.rounds)
        # How often a random walk visits a node is not known in advance. At the cap the token goes on unchanged.
        return (self.rounds,) * graph.n if stated else walks.caps(CHANCE[self.walk](graph), self.rounds)

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        return min(most or visits, visits), self.rounds

    def agent(self, context: tokens.NodeContext) -> tokens.TokenNode:
        """A node's machine."""
        raise NotImplementedError

    def warning(self, n: int) -> str | None:
        """What to say of a walk among n nodes that no theorem covers; None if there is nothing."""
        return None


class Rounds(Algorithm, frozen=True, kw_only=True):
    """Synchronous rounds among neighbours."""

    pattern: ClassVar[Pattern] = "neighbours"
    messages: ClassVar[int] = 1  #: messages of a node in a round
    message_vectors: ClassVar[int] = 1  #: vectors of length d in a message
    #: Whether a node asks its gate after it has sent a round's message. Otherwise it asks before, and the message has
    #: the answer.
    asks_after: ClassVar[bool] = False

    finish: Finish | UnsetType = UNSET  #: rounds of averaging after the last answer [none]

    @property
    def answers(self) -> int:
        """The answers of a node over the whole run."""
        return self.rounds

    @property
    def recorded_messages(self) -> tuple[str, ...]:
        """Names of a round's messages in a recorded trajectory; empty if they are not recorded."""
        return ()

    def capped(self, most: int | None, mode: str, visits: int) -> tuple[int, int]:
        # Synchronous rounds end with the one in which the cap is reached.
        answers = max(min(most or self.answers, self.answers), 1)
        rounds = range(1, self.rounds + 1)
        return answers, bisect_right(rounds, answers, key=lambda T: answers_in(self, T))

    def agent(self, context: neighbours.NodeContext) -> neighbours.Neighbour:
        """A node's machine."""
        raise NotImplementedError


# --- what follows from a declaration ---


def gated(algorithm: Algorithm) -> bool:
    """Whether the gate makes its noise and counts its full price."""
    published = algorithm.published
    return algorithm.variant == "guarded" or (
        algorithm.variant == "published" and published is not None and published.source == "gate"
    )


def claims_epsilon(algorithm: Algorithm) -> bool:
    """Whether a scenario states an epsilon for it."""
    published = algorithm.published
    return algorithm.variant == "guarded" or (
        algorithm.variant == "published" and published is not None and published.source != "scales"
    )


def mechanisms(algorithm: Algorithm) -> tuple[str, ...]:
    """The mechanisms that a privacy section may name: objective perturbation is Laplace's alone."""
    published = algorithm.published if algorithm.variant == "published" else None
    named = published.mechanisms if published else BOTH
    if algorithm.asks() != "minimiser":
        return named
    return tuple(m for m in named if m == "laplace" or algorithm.by_output(m))


def walk_of(algorithm: Algorithm) -> Way | None:
    """The walk of its token; None if it has no token."""
    return getattr(algorithm, "walk", None)


def gossip_of(algorithm: Algorithm) -> int:
    """The rounds of averaging after the last answer."""
    finish: Finish | UnsetType = getattr(algorithm, "finish", UNSET)
    return 0 if finish is UNSET else finish.gossip


def message_vectors(algorithm: Algorithm | type[Algorithm]) -> int:
    """The number of vectors of length d in its largest message."""
    return len(getattr(algorithm, "token", ())) or int(getattr(algorithm, "message_vectors", 1))


def answers_in(algorithm: Rounds, rounds: int) -> int:
    """The answers of a node in the first `rounds` rounds."""
    return replace(algorithm, rounds=rounds).answers
