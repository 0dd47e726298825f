"""What all kinds of problems over a graph have in common: nodes n0, n1, ... hold f_i and agree on one x (d,).

A kind that extends these classes adds what its data are and how its gate answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, cast

from msgspec import UNSET, Meta, Struct

from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Sharing, Walk, message_vectors, walk_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network, check_walk, cyclic_route
from hushgrid.kernels.machine import Keeping
from hushgrid.kernels.patterns import routes
from hushgrid.kernels.patterns.token_messages import Route
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import EDGES, NODES, Digest, Lipschitz, Node, Seed
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.gate import Expiry, Gate
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import D, Device, DeviceFile, Outcome, P, Plan, ProblemKind, S, ScenarioSections
from hushgrid.node.problems.machines import machine_of, place
from hushgrid.node.schema.sections import Adjacency, Privacy
from hushgrid.node.wire import SMALL

if TYPE_CHECKING:
    from hushgrid.node.privacy.budget import BudgetCheck
    from hushgrid.node.privacy.ledger import Ledger
    from hushgrid.node.privacy.noise_source import NoiseSource

RouteIs = Literal["random", "metropolis", "given", "hamiltonian", "closed-walk", "rounds"]
Constants = Annotated[list[Lipschitz], Meta(max_length=NODES)]
#: The numbers of the nodes that a run is made with, ascending, if it is without some.
Ids = Annotated[list[Node], Meta(max_length=NODES)]
Edges = Annotated[list[tuple[Node, Node]], Meta(max_length=EDGES)]
#: The closed walk to repeat, from node 0; empty for a random and for a given walk.
ClosedWalk = Annotated[list[Node], Meta(max_length=2 * NODES)]


class Wiring(NamedTuple):
    """The public graph of a run, and how a token walks on it. Around a coordinator there are no edges."""

    edges: list[tuple[int, int]]
    route: list[int]  #: the closed walk to repeat, from node 0; empty for a random and for a given walk
    route_is: RouteIs
    walk_seed: int | None


@lru_cache(maxsize=4)  # each of n nodes of one process asks for all of them, several times
def _names(n: int) -> tuple[str, ...]:
    return tuple(map(routes.name, range(n)))


def induced(plan: OnGraph, present: Sequence[str]) -> dict[str, object]:
    """What changes in the public part of a problem over a graph if these nodes alone take part: fields by name.

    Raises InputError if they are not connected among themselves, or the walk is given.
    """
    if not plan.edges:
        members = [i for i, node in enumerate(plan.nodes) if node in present]
        return {"L": [plan.L[i] for i in members], "present": [routes.index(plan.nodes[i]) for i in members]}
    if plan.route_is == "given":
        raise InputError("algorithm.walk: found a given walk, expected one that can go on without a node")
    members = [i for i, node in enumerate(plan.nodes) if node in present]
    place = {i: k for k, i in enumerate(members)}
    edges = [(place[a], place[b]) for a, b in plan.edges if a in place and b in place]
    graph = Graph.from_edges(len(members), edges)
    numbers = [routes.index(plan.nodes[i]) for i in members]
    fields: dict[str, object] = {"L": [plan.L[i] for i in members], "edges": edges, "present": numbers}
    if plan.route:
        cycle = cyclic_route(graph)
        fields |= {"route": list(cycle.nodes), "route_is": cycle.kind}
    return fields


def wired(sections: ScenarioSections, L: Sequence[float], convexity: float) -> Wiring:
    """The wiring of a scenario. L: the smoothness constant of each node. convexity: every f_i - convexity/2 |x|^2 is
    convex.

    Raises InputError if the graph, the walk and the algorithm's parameters do not fit each other.
    """
    network, algorithm, walk = sections.network, sections.algorithm, walk_of(sections.algorithm)
    if network is None:  # `located` has seen to it that there is one where nodes send messages to each other
        algorithm.check(L, 0, convexity)
        return Wiring([], [], "rounds", sections.seed)
    graph = network.build()
    if graph.n != len(L):
        raise InputError(f"network: found {graph.n} nodes, expected {len(L)}, as many as have data")
    route: list[int] = []
    route_is: RouteIs = "random"
    if walk is None:
        route_is = "rounds"
    elif not isinstance(walk, str):
        check_walk(graph, walk, algorithm.rounds)
        route_is = "given"
    elif walk == "hamiltonian":
        cycle = cyclic_route(graph)
        route, route_is = list(cycle.nodes), cycle.kind
    elif walk == "metropolis":
        route_is = "metropolis"
    algorithm.check(L, max(map(len, graph.neighbours)), convexity)
    if route_is == "rounds" and sections.stop:
        raise InputError("run.stop: found a section, expected none (synchronous rounds without a centre)")
    return Wiring(list(graph.edges), route, route_is, sections.seed)


class OnGraph(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The methods of a public part that has these fields.

    A subclass declares the fields itself, because the order of fields is that of a plan's bytes.
    """

    if TYPE_CHECKING:

        @property
        def L(self) -> Constants: ...
        @property
        def edges(self) -> Edges: ...
        @property
        def route(self) -> ClosedWalk: ...
        @property
        def route_is(self) -> RouteIs: ...
        @property
        def walk_seed(self) -> Seed | None: ...
        @property
        def size(self) -> int:
            """d, the length of x."""

    @property
    def dimension(self) -> int:
        """Entries of the problem that a device says it has."""
        return self.size

    @property
    def kind(self) -> str:
        """Name of the kind: the tag of its public part."""
        return str(self.__struct_config__.tag)

    @property
    def nodes(self) -> list[str]:
        """The names n0, n1, ..., one for each entry of L; of a run without some nodes, the names of the others."""
        return [routes.name(i) for i in self.ids] or [*_names(len(self.L))]

    @property
    def ids(self) -> list[int]:
        """The numbers in the nodes' names; empty where they are 0, 1, ... without a gap."""
        present = getattr(self, "present", UNSET)
        return [] if present is UNSET else present

    def position(self, node: str) -> int:
        """Where a node of this run stands in L and in the graph."""
        return self.ids.index(routes.index(node)) if self.ids else routes.index(node)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the nodes 0 to n - 1; around a coordinator no edges."""
        return Graph.from_edges(len(self.L), self.edges) if self.edges else Graph(((),) * len(self.L))

    @property
    def regularizer(self) -> Regularizer:
        """r(x): none."""
        return Regularizer()

    @property
    def constrained(self) -> bool:
        """Whether there is an r(x) or a box."""
        return False

    @property
    def convexity(self) -> float:
        """alpha: every f_i - alpha/2 |x|^2 is convex; nothing is known."""
        return 0.0

    @property
    def degree(self) -> int:
        """The largest degree of a node."""
        return max(map(len, self.graph.neighbours))

    @property
    def constants(self) -> tuple[Sequence[float], int]:
        return self.L, self.degree

    @property
    def held(self) -> bool:
        """Whether constraints keep the iterates bounded: there are none."""
        return False

    def visits(self, algorithm: Algorithm, stated: bool) -> tuple[int, ...]:
        return cast(Walk, algorithm).visits(self.graph, self.route, stated) if algorithm.pattern == "token" else ()

    def way(self, algorithm: Algorithm, run: bytes) -> Route:
        """The token's walk, which is public: every node and the coordinator compute the same."""
        walk = walk_of(algorithm)
        if not isinstance(walk, str):
            return routes.listed(walk or ())
        seed = int.from_bytes(run[:8], "little") if self.walk_seed is None else self.walk_seed
        if walk == "hamiltonian":
            route = routes.cyclic(self.graph, self.route)
        else:
            route = routes.random(self.graph, seed, walk == "metropolis")
        return routes.renamed(route, self.nodes) if self.ids else route

    def check(self, algorithm: Algorithm) -> None:
        """Raises InputError if its parts contradict each other. A device checks this before it computes with them."""
        if self.ids and (len(self.ids) != len(self.L) or sorted(set(self.ids)) != self.ids):
            raise InputError("plan: present: found other numbers, expected one for each node, ascending")
        if algorithm.pattern != "star":
            Graph.from_edges(len(self.L), self.edges)
        elif self.edges or not self.L:
            size = f"{len(self.L)} nodes with {len(self.edges)} edges"
            raise InputError(f"plan: found {size}, expected at least 1 with none ({algorithm.name})")
        algorithm.check(self.L, self.degree, self.convexity)
        n, graph, route, walk = len(self.L), self.graph, self.route, walk_of(algorithm)
        if walk is None:
            return
        if not isinstance(walk, str):
            check_walk(graph, walk, algorithm.rounds)
        elif (walk == "hamiltonian") != bool(route) or (route and set(route) != set(range(n))):
            raise InputError(
                f"plan: route: found {len(route)} nodes, expected a closed walk (algorithm.walk: hamiltonian)"
            )
        elif route:
            check_walk(graph, (*route, route[0]), len(route), "plan: route")


class GraphPlan(OnGraph, frozen=True, kw_only=True):
    """The public part of a problem over a graph, with the fields of `OnGraph`; a kind adds its own."""

    L: Constants  #: L_i
    edges: Edges
    route: ClosedWalk
    route_is: RouteIs
    walk_seed: Seed | None  #: the seed of a seeded run; else a random walk is a function of the run's id
    digest: Digest = ""  #: of the public data that no plan carries: there are none


class GraphNode(ABC):
    """A node with private data, whose gate answers with gradients of f_i."""

    kind: ClassVar[str]  #: name of its kind
    neighbours: ClassVar[bool] = True
    name: str
    #: Its pads in a run of that id, kept in its ledger; None: it takes part in no masked run.
    masks: masking.MakeMasks | None = None
    until: Vector | None = None  #: (m,) running time, s, until which each record counts; None: for ever

    @abstractmethod
    def gate(self, plan: Plan, noise: NoiseSource, budget_check: BudgetCheck) -> Gate:
        """Its gate in a run. Raises InputError if the plan's terms cannot be met, by public numbers."""

    @property
    def digest(self) -> str:
        """Empty, because the plan carries all that is public of its data."""
        return ""

    @property
    def dimension(self) -> int:
        """Entries of the problem that it says it has."""
        return 1

    @property
    def public_part(self) -> str:
        """The number of features."""
        return f"{self.dimension} features"

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan is of this kind and names this node."""
        p = plan.problem
        if p.kind != self.kind or self.name not in p.nodes:
            raise InputError(
                f"{self.name}: found a plan of kind {p.kind} for {p.nodes[0]}..{p.nodes[-1]}, expected one for it"
            )

    def remark(self, plan: Plan) -> str:
        return ""

    def limit(self, plan: Plan) -> int:
        """The bytes of the largest message on this device's edges: its vectors, twice in a recount, and a token's
        lists.
        """
        entries: int = message_vectors(plan.algorithm) * plan.problem.size
        introduced = masking.INTRODUCTION * len(plan.nodes) if plan.terms and plan.terms.masked else 0
        return SMALL + 16 * entries + 200 * len(plan.nodes) + introduced

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, budget_check: BudgetCheck
    ) -> tuple[Keeping, Gate]:
        """Its machine and its gate in a run whose plan it has checked. `run`: the run's id."""
        gate, t = self.gate(plan, noise, budget_check), plan.terms
        gate.expiry = None if self.until is None else Expiry(self.until, lambda: ledger.spends.running)
        if t is not None and t.masked is not None:
            if self.masks is None:
                raise masking.none_allowed(self.name)
            masks = self.masks(run, ledger, budget_check.allow.masked)
            return masking.member(plan, self.name, gate, masks), gate
        made: Keeping = machine_of(plan, place(plan, run, plan.problem.position(self.name), gate, noise))
        return made, gate


class GraphKind(ProblemKind[S, P, D]):
    """A kind of problem over a graph, in simulation only until a subclass overrides the methods for real devices."""

    patterns: ClassVar[tuple[Pattern, ...]] = ("token", "neighbours")
    sharing: ClassVar[Sharing] = "copies"
    records: ClassVar[bool] = True

    def located(self, problem: S, network: Network | None, networked: bool, base: Path, file: str) -> S:
        tag = problem.__struct_config__.tag
        if network is None and networked:
            raise InputError(f"{file}: network: missing, expected a section (problem.kind: {tag})")
        if network is not None and not networked:
            raise InputError(f"{file}: network: found a section, expected none (all messages go by the coordinator)")
        return problem

    def check_questions(self, problem: S, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        """Raises InputError unless gradients are asked under replace-one-record, which is what its gate answers."""
        if algorithm.asks() == "minimiser" or str(privacy.adjacency) != "replace-one-record":
            raise InputError(
                f"{file}: problem.kind: found {self.name} with {algorithm.name} and adjacency {privacy.adjacency}, "
                "expected an algorithm that asks for gradients, and replace-one-record"
            )

    def solved(self, algorithm: Algorithm) -> str:
        return self.name

    def unit(self, algorithm: Algorithm) -> str:
        return "one record"

    def device(self, owner: DeviceFile, path: str) -> Device:
        raise InputError(f"{path}: data: found data of kind {self.name}, expected a kind that is not simulated only")

    def outcome(self, device: D, state: Path) -> Outcome:
        return lambda vectors, facts: None

    def data_words(self, data: Any) -> str:
        return self.name

    def hidden(self, owner: DeviceFile, device: D, adjacency: Adjacency) -> list[str]:
        return [f"hidden: {adjacency}"]

    def on_devices(self, problem: S) -> str | None:
        return f"problem.kind: found {self.name}, expected a kind that is not simulated only"
