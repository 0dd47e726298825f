"""The sections that scenarios, plans and device files share."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, sqrt
from typing import Annotated, ClassVar, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from hushgrid.kernels.ranges import (
    BUSES,
    ENTRIES,
    NODES,
    Bus,
    Count,
    Delta,
    Epsilon,
    Magnitude,
    PowerFactor,
    RowCount,
    Sha256,
    Share,
    Tolerance,
)
from hushgrid.node.schema.durations import Length, seconds

ROUNDED = 2.0**-50  #: above the relative error of a few operations in float64


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A section of a file: unknown keys are refused."""


class ReplaceOneRecord(Section, frozen=True, kw_only=True):
    clip: Magnitude  #: the norm that a record's gradient is clipped to: L1 for laplace, L2 for gaussian
    #: k: one change replaces so many records of a device, whichever: those of a day, or of a person [1]
    records: RowCount | UnsetType = UNSET


class Change(Section, frozen=True, kw_only=True, omit_defaults=True):
    """A bounded change that only loads have: of one customer's p and q, or of a load against its contract."""

    #: one customer: p of a bus differs by at most so many p.u., q of the same bus by at most tan(phi) times as much
    pair: Magnitude | None = None
    power_factor: PowerFactor | None = None  #: cos(phi) of that customer
    #: one load, p or q of a bus, differs by at most this share of its contracted capacity
    relative: Share | None = None
    #: the public capacities, a CSV file of bus, p_mw, q_mvar with a row a bus (0: never any load);
    #: in a plan the SHA-256 digest of its rows
    of: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    digest: Sha256 | None = None  #: what the digest of that file must be [whatever it is]; in no plan

    def __post_init__(self) -> None:
        pair = self.pair is not None and self.power_factor is not None
        relative = self.relative is not None and self.of is not None
        others = (self.relative, self.of, self.digest) if pair else (self.pair, self.power_factor)
        if not (pair or relative) or any(value is not None for value in others):
            raise ValueError("Expected a number, {pair, power_factor} or {relative, of}")

    def __str__(self) -> str:
        """One word, in which a ledger reads a relation of its own: kinds of change are never converted."""
        if self.pair is not None:
            return f"pair-change:{self.pair!r}:{self.power_factor!r}"
        return f"relative-change:{self.relative!r}:{self.capacities[:12]}"

    @property
    def reactive(self) -> float:
        """beta tan(phi) of a pair, p.u., never too small; 0 of a relative change."""
        if self.pair is None or self.power_factor is None:
            return 0.0
        return self.pair * tangent(self.power_factor) * (1 + ROUNDED)

    @property
    def capacities(self) -> str:
        """Digest of the file of capacities; "" of a pair."""
        return self.digest or self.of or ""


class Day(Section, frozen=True, kw_only=True):
    """A customer's whole day: at one bus, p moves by dp_t and q by dq_t in the periods of a horizon, each of h hours.

    h sum_t |dp_t| is at most the energy, and |dq_t| at most tan(phi) |dp_t|.
    """

    energy_mwh: Magnitude  #: E: so much energy at the most, in whatever shape over the day
    power_factor: PowerFactor  #: cos(phi) of that customer

    relative: ClassVar[None] = None  #: as of another `Change`: it is none of its own contract
    of: ClassVar[None] = None
    capacities: ClassVar[str] = ""

    def __str__(self) -> str:
        """One word, as of any other change."""
        return f"day-change:{self.energy_mwh!r}:{self.power_factor!r}"

    @property
    def pair(self) -> float:
        """E, MWh: p and q move together."""
        return self.energy_mwh

    @property
    def reactive(self) -> float:
        """E tan(phi), MVArh, never too small."""
        return self.energy_mwh * tangent(self.power_factor) * (1 + ROUNDED)


def tangent(cos: float) -> float:
    """tan(phi) of cos(phi)."""
    return sqrt((1 - cos) * (1 + cos)) / cos


class Adjacency(Section, frozen=True, kw_only=True):
    """Which two data sets a device's privacy makes alike; one of the three."""

    #: zones: one load, p or q of a bus, differs by at most so many p.u., or a change of another kind; data:
    #: the gradient differs by at most so much everywhere, L1 for laplace, L2 for gaussian
    bounded_change: Magnitude | Change | None = field(default=None, name="bounded-change")
    #: zones over a horizon: the whole day of one customer at one bus
    day: Day | UnsetType = UNSET
    #: data: one row and its label are replaced by any other
    replace_one_record: ReplaceOneRecord | None = field(default=None, name="replace-one-record")

    def __str__(self) -> str:
        """The relation that a ledger counts by: a change of loads with its unit; replacing k records, whatever the
        clip.
        """
        if self.of_loads is not None:
            return str(self.of_loads)
        if self.bounded_change is not None:
            return f"bounded-change {self.bounded_change!r}"
        if self.replace_one_record is None:
            return ""
        return "replace-one-record" + (f" {self.records}" if self.records > 1 else "")

    @property
    def of_loads(self) -> Change | Day | None:
        """A change that only loads have, if it is one."""
        if self.day:
            return self.day
        return self.bounded_change if isinstance(self.bounded_change, Change) else None

    @property
    def records(self) -> int:
        """How many records one change replaces; 1 where it replaces none."""
        return (self.replace_one_record.records or 1) if self.replace_one_record else 1

    @property
    def beta(self) -> float:
        """The bounded change that is a number; 0 if it is none."""
        return 0.0 if self.bounded_change is None or isinstance(self.bounded_change, Change) else self.bounded_change

    def public(self) -> Adjacency:
        """As a plan says it: a file is named by its digest."""
        change = self.bounded_change
        if not isinstance(change, Change) or change.of is None:
            return self
        return replace(self, bounded_change=replace(change, of=change.capacities, digest=None))


class PerAnswer(Section, frozen=True, kw_only=True):
    epsilon: Epsilon  #: of one answer
    delta: Delta | None = None  #: of one answer; gaussian


class Schedule(Section, frozen=True, kw_only=True):
    growth: Magnitude  #: g: mu_k^2 of answer k is in proportion to g^k; their sum is that of even answers


class Budget(Section, frozen=True, kw_only=True):
    """A hard cap a device enforces from its own ledger; one budget belongs to one adjacency."""

    epsilon: Epsilon  #: the most that the ledger may spend, over all runs; with a window: in any window
    delta: Delta | None = None  #: required if runs with gaussian noise are allowed
    #: a sliding window of the device's own running time, e.g. 24h: epsilon is the most that may be spent on what the
    #: data are within any such interval, and on any one data version of whatever age;
    #: the time off counts nothing [epsilon is over the life of the ledger]
    window: Length | None = None
    #: the most epsilon that the ledger may spend over its life beside the window's, at the same delta [no limit with a
    #: window; without one epsilon is it]
    lifetime: Epsilon | None = None
    adjacency: Adjacency | None = None  #: the relation it belongs to; required of a device [the run's own]

    def __post_init__(self) -> None:
        if self.window is None:
            if self.lifetime is not None:
                raise ValueError("Expected no lifetime without a window: epsilon is over the life of the ledger then")
        elif self.span == 0:
            raise ValueError("Expected a window above 0s")
        elif self.lifetime is not None and self.lifetime < self.epsilon:
            raise ValueError("Expected a lifetime of at least the epsilon of one window")

    @property
    def span(self) -> float | None:
        """Length of the window, s; None without one."""
        return None if self.window is None else seconds(self.window)


class Sites(Section, frozen=True, kw_only=True):
    """Masked sums in two levels: devices mask within their site, and sites against each other."""

    #: how many sites: the nodes are dealt to s1, s2, ... in their order, as evenly as can be
    number: Annotated[int, Meta(ge=1, le=NODES)] | UnsetType = UNSET
    sizes: Annotated[tuple[Count, ...], Meta(max_length=NODES)] | UnsetType = UNSET  #: or how many nodes each has
    #: c: so many sites' coordinators, another than a device's own, may work together with the fleet's [0]
    corrupt: Annotated[int, Meta(ge=0, lt=NODES)] | UnsetType = UNSET
    contributors: Count | UnsetType = UNSET  #: m, the fewest sites of a round [all]

    def __post_init__(self) -> None:
        if (self.number is UNSET) == (self.sizes is UNSET):
            raise ValueError("Expected one of number and sizes")

    def dealt(self, nodes: int) -> tuple[int, ...]:
        """How many of so many nodes each site has."""
        if self.sizes is not UNSET:
            return self.sizes
        number = self.number or 1
        return tuple(nodes * (k + 1) // number - nodes * k // number for k in range(number))


class Masking(Section, frozen=True, kw_only=True):
    """Masked sums: broker and coordinator see only sums over devices, and each adds a share of the noise."""

    #: t: of a round's contributors so many may work together with broker and coordinator;
    #: the others' shares are noise enough
    corrupt: Annotated[int, Meta(ge=0, lt=NODES)]
    #: s: the fewest devices of a round [all]; with fewer than all a round can be asked again without those that are
    #: silent
    contributors: Count | UnsetType = UNSET
    #: k: each device masks with so many others, which it picks by itself, and with those that have picked it [all]
    neighbours: Count | UnsetType = UNSET
    #: beside `neighbours`: what their graphs may add to delta in the whole run [1e-9]
    exposed: Delta | UnsetType = UNSET
    #: two levels of sums: `contributors` are those of each site then [one level]
    sites: Sites | UnsetType = UNSET
    #: in a plan alone: a pad is named by the whole question, and a device takes part under no other rule
    pads: Literal["question"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.exposed and not self.neighbours:
            raise ValueError("Expected exposed beside neighbours alone")


class Privacy(Section, frozen=True, kw_only=True):
    mechanism: Literal["laplace", "gaussian"] = "laplace"  #: the noise's distribution
    adjacency: Adjacency  #: which two data sets are made alike
    epsilon: Epsilon | None = None  #: total of each node over the run; either this or `per_answer`
    delta: Delta | None = None  #: total; required of gaussian and pure-optimal, refused by pure-basic
    #: the cost of one answer, as papers state it: the total is computed and printed
    per_answer: PerAnswer | None = None
    #: how answers compose [laplace: pure-basic; gaussian: zcdp]
    accountant: Literal["pure-basic", "pure-optimal", "zcdp", "gdp"] | None = None
    #: the most answers of a node, a number or one a node of a token's walk; beyond it its last one counts on [as many
    #: as the rounds or the walk ask; random walk: by its law of visits]
    answers: Count | Annotated[tuple[Count, ...], Meta(max_length=NODES)] | None = None
    #: zones: objective (noise anew for each answer) or input (once, on the loads); output perturbation: published
    #: only
    mode: Literal["objective", "input", "output", "output-projected"] = "objective"
    #: zones: where the noise of mode objective stands, on the loads or the gradient
    at: Literal["data", "gradient"] = "data"
    #: zones, mode input, laplace: totals also releases noisy sums of a zone's p and of its q, and makes the loads agree
    #: with them: less noise in sums, up to twice as much in single loads [plain]
    release: Literal["plain", "totals"] | UnsetType = UNSET
    budget: Budget | None = None  #: what each simulated node's ledger lets it spend
    #: logistic regression, gaussian, replace-one-record: pointwise scales the noise of an answer by how far a record
    #: can move the gradient at the point asked for: less noise near zero, at the same cost [uniform:
    #: at the worst point]
    sensitivity: Literal["uniform", "pointwise"] | UnsetType = UNSET
    #: star, gaussian: only sums over devices are seen, so each device's noise may be smaller [each sum is seen by
    #: itself]
    masked: Masking | UnsetType = UNSET
    #: gradients of records, gaussian: how the total is spread over a node's answers, by a public number [evenly]
    schedule: Schedule | UnsetType = UNSET

    def public(self) -> Privacy:
        """As a plan says it: no budget, which stays with the nodes; files by their digests;
        nothing said of the usual.
        """
        release: Literal["totals"] | UnsetType = "totals" if self.release == "totals" else UNSET
        sensitivity: Literal["pointwise"] | UnsetType = "pointwise" if self.sensitivity == "pointwise" else UNSET
        return replace(
            self,
            budget=None,
            adjacency=self.adjacency.public(),
            release=release,
            sensitivity=sensitivity,
            schedule=self.schedule if self.growth != 1 else UNSET,
            masked=replace(self.masked, pads="question") if self.masked else UNSET,
        )

    @property
    def growth(self) -> float:
        """g of the schedule; 1: even."""
        return self.schedule.growth if self.schedule else 1.0


class Stop(Section, frozen=True, kw_only=True):
    tolerance: Tolerance  #: of the largest change of w in a round (star), or of the token over patience n hops
    patience: Count = 3  #: rounds in a row that must stay within it


Buses = Annotated[list[Bus], Meta(max_length=BUSES)]


class PerRun(Section, frozen=True, kw_only=True):
    epsilon: Epsilon  #: the most that one run may cost


class Loaded(Section, frozen=True, kw_only=True):
    """The buses that may draw active (p) and reactive (q) power: public."""

    p: Buses  #: numbers of the buses that may draw active power
    q: Buses  #: numbers of the buses that may draw reactive power


class AllowSite(Section, frozen=True, kw_only=True):
    """What a device's owner consents to towards the coordinator of its own site, which sees the site's sums."""

    #: how many honest contributors of its own site, this device among them, its owner believes in; a plan must rely on
    #: as many at least
    honest: Annotated[int, Meta(ge=1, le=NODES)]
    #: the most that all its shares over the life of the ledger may be worth against that coordinator, at the
    #: budget's delta
    epsilon: Epsilon


Fingerprints = Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=NODES)]


class AllowMasked(Section, frozen=True, kw_only=True):
    """Which masked runs a device's owner consents to, and whose certificates it believes in them: `peers` or `ca`."""

    #: the fewest of a round's contributors that a plan must reckon to be corrupt: their number,
    #: or a share of them below 1, of which part of a device counts as one
    corrupt: Annotated[int, Meta(ge=0, lt=NODES)] | Annotated[float, Meta(gt=0, lt=1)]
    #: h: how many honest contributors of a round, this device among them, its owner believes in.
    #: A plan must rely on as many at least, and whatever it relies on, each share is counted as one of h
    honest: Annotated[int, Meta(ge=1, le=NODES)]
    #: fingerprints of the members' certificates: SHA-256 of DER, in lower case, without colons
    peers: Fingerprints | None = None
    #: certificates of authorities, a file; a member is whoever has one of theirs. None with the key of `tls.ca`,
    #: which can certify members that do not exist
    ca: str | None = None
    revoked: Fingerprints | None = None  #: beside `ca`: fingerprints of certificates that are believed no more
    #: beside `ca`: a file with its authorities' lists of revoked certificates, in PEM or DER, read before each run
    crl: str | None = None
    #: the most that all its shares over the life of the ledger may be worth against everybody else together,
    #: at the budget's delta
    alone: Epsilon
    #: the most that graphs of masks may add to delta over the life of the ledger, counted with `honest`.
    #: None: no run in which devices mask with few others
    exposed: Delta | None = None
    site: AllowSite | None = None  #: masked sums in two levels [none]

    def __post_init__(self) -> None:
        if (self.peers is None) == (self.ca is None):
            raise ValueError("Expected one of peers and ca")
        if self.ca is None and (self.revoked or self.crl):
            raise ValueError("Expected revoked and crl beside ca alone: of peers a certificate is left out")

    def least_corrupt(self, contributors: int) -> int:
        """How many of so many contributors a plan must reckon to be corrupt.
        A share is the decimal that somebody wrote.
        """
        if isinstance(self.corrupt, int):
            return self.corrupt
        return ceil(Fraction(repr(self.corrupt)) * contributors)


Column = Annotated[int, Meta(ge=0, le=ENTRIES)]


class Question(NamedTuple):
    """What a plan asks about a device's data, as far as an owner can say yes or no to it."""

    kind: str  #: as a scenario's `problem.kind`
    columns: tuple[int, ...] = ()  #: of a statistic: the numbers of a record that it reads
    edges: tuple[float, ...] | None = None  #: of a histogram's bins

    def __str__(self) -> str:
        return self.kind + _narrowed(self.columns, self.edges)


def _narrowed(columns: tuple[int, ...], edges: tuple[float, ...] | None) -> str:
    few = ", ".join(map(str, columns[:8])) + (", ..." if len(columns) > 8 else "")
    read = f" of column{'s' if len(columns) > 1 else ''} {few}" if columns else ""
    return read + (f", {len(edges)} edges" if edges else "")


class AllowedProblem(Section, frozen=True, kw_only=True):
    """A question that a device answers."""

    kind: str  #: as `problem.kind` of a scenario
    column: Column | None = None  #: of a statistic: the one number of a record that it may read
    #: the same for several: it may read these, or some of them [any; 0 to q - 1 are the features, q is the label]
    columns: Annotated[tuple[Column, ...], Meta(min_length=1, max_length=10_000)] | None = None
    #: of a histogram: the edges that its bins must have [any]
    edges: (
        Annotated[tuple[Annotated[float, Meta(ge=-1e12, le=1e12)], ...], Meta(min_length=2, max_length=2048)] | None
    ) = None

    def __post_init__(self) -> None:
        if self.column is not None and self.columns is not None:
            raise ValueError("Expected one of column and columns")

    @property
    def read(self) -> tuple[int, ...] | None:
        """The columns that it may read; None: any."""
        return self.columns if self.column is None else (self.column,)

    def allows(self, question: Question) -> bool:
        """Whether it lets a question pass: of its kind, about no other columns, in the same bins."""
        return (
            self.kind == question.kind
            and (self.read is None or {*question.columns} <= {*self.read})
            and (self.edges is None or self.edges == question.edges)
        )

    def __str__(self) -> str:
        return self.kind + _narrowed(self.read or (), self.edges)


class Allow(Section, frozen=True, kw_only=True):
    """What the device's owner consents to; a plan outside of it is refused."""

    #: the questions that the device answers, and no others [the kinds that there were when its ledger was born,
    #: or the one that `problem` declares]
    problems: Annotated[tuple[AllowedProblem, ...], Meta(max_length=1000)] | None = None

    algorithms: list[str] | None = None  #: by name [every one that solves its kind of problem]
    per_run: PerRun | None = None  #: a limit on one run [the whole budget]
    adjacency: Adjacency | None = None  #: the relation that a run must have [the budget's]
    loads: Loaded | None = None  #: zones: the public mask of the loads that a plan must have at its buses [any]
    masked: AllowMasked | None = None  #: runs in which only sums over devices are seen [none]


class Tls(Section, frozen=True, kw_only=True):
    ca: str  #: certificate of the broker's authority, a file
    cert: str | None = None  #: this client's own certificate, a file
    key: str | None = None  #: its private key, a file
