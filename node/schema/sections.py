"""The sections that scenarios, plans and device files share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from hushgrid.kernels.ranges import BUSES, Bus, Count, Delta, Epsilon, Magnitude, Tolerance


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A section of a file: unknown keys are refused."""


class ReplaceOneRecord(Section, frozen=True, kw_only=True):
    clip: Magnitude  #: the norm that a record's gradient is clipped to: L1 for laplace, L2 for gaussian


class Adjacency(Section, frozen=True, kw_only=True):
    """Which two data sets a device's privacy makes alike; one of the two."""

    #: zones: one load, p or q of a bus, differs by at most so many p.u.; data: the gradient differs by at most so
    #: much everywhere, L1 for laplace, L2 for gaussian
    bounded_change: Magnitude | None = field(default=None, name="bounded-change")
    #: data: one row and its label are replaced by any other
    replace_one_record: ReplaceOneRecord | None = field(default=None, name="replace-one-record")

    def __str__(self) -> str:
        """The relation that a ledger counts by: bounded change with its unit; replacing a record, whatever the clip."""
        if self.bounded_change is not None:
            return f"bounded-change {self.bounded_change!r}"
        return "replace-one-record" if self.replace_one_record else ""


class PerAnswer(Section, frozen=True, kw_only=True):
    epsilon: Epsilon  #: of one answer
    delta: Delta | None = None  #: of one answer; gaussian


class Budget(Section, frozen=True, kw_only=True):
    """A hard cap a device enforces from its own ledger; one budget belongs to one adjacency."""

    epsilon: Epsilon  #: the most that the ledger may spend, over all runs
    delta: Delta | None = None  #: required if runs with gaussian noise are allowed
    adjacency: Adjacency | None = None  #: the relation it belongs to; required of a device [the run's own]


class Privacy(Section, frozen=True, kw_only=True):
    mechanism: Literal["laplace", "gaussian"] = "laplace"  #: the noise's distribution
    adjacency: Adjacency  #: which two data sets are made alike
    epsilon: Epsilon | None = None  #: total of each node over the run; either this or `per_answer`
    delta: Delta | None = None  #: total; required of gaussian and pure-optimal, refused by pure-basic
    #: the cost of one answer, as papers state it: the total is computed and printed
    per_answer: PerAnswer | None = None
    #: how answers compose [laplace: pure-basic; gaussian: zcdp]
    accountant: Literal["pure-basic", "pure-optimal", "zcdp", "gdp"] | None = None
    #: the most answers of a node; beyond it its last one counts on [as many as the rounds ask; random walk: by its
    #: law of visits]
    answers: Count | None = None
    #: zones: objective (noise anew for each answer) or input (once, on the loads); output perturbation: published
    #: only
    mode: Literal["objective", "input", "output", "output-projected"] = "objective"
    #: zones: where the noise of mode objective stands, on the loads or the gradient
    at: Literal["data", "gradient"] = "data"
    budget: Budget | None = None  #: what each simulated node's ledger lets it spend


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


class Allow(Section, frozen=True, kw_only=True):
    """What the device's owner consents to; a plan outside of it is refused."""

    algorithms: list[str] | None = None  #: by name [every one that solves its kind of problem]
    per_run: PerRun | None = None  #: a limit on one run [the whole budget]
    adjacency: Adjacency | None = None  #: the relation that a run must have [the budget's]
    loads: Loaded | None = None  #: zones: the public mask of the loads that a plan must have at its buses [any]


class Tls(Section, frozen=True, kw_only=True):
    ca: str  #: certificate of the broker's authority, a file
    cert: str | None = None  #: this client's own certificate, a file
    key: str | None = None  #: its private key, a file
