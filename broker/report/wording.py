"""What a report says of one kind of problem: a class a kind, which hands its sentences to the statement and the
page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import sqrt
from pathlib import PurePath
from typing import Any, ClassVar

import msgspec

from hushgrid.broker.report.claims import claim_of
from hushgrid.broker.report.dispatch import SOLVED
from hushgrid.broker.report.drawings.numbers import MISSING, number
from hushgrid.broker.report.run_directory import Run
from hushgrid.kernels.algorithms.base import UNITS, gated
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.kernels.types import DocumentView
from hushgrid.node.schema.sections import Change, Day

Limit = tuple[str, str]  #: what is not protected: its title, and a sentence


def part(value: Any, name: str) -> Any:
    """epsilon or delta of what is written as {epsilon, delta}; None where it is not."""
    return value.get(name) if isinstance(value, Mapping) else None


def _norm(mechanism: str) -> str:
    return "sum of absolute values" if mechanism == "laplace" else "Euclidean norm"


class Wording(ABC):
    """The sentences of a kind of problem, about one run."""

    whose: ClassVar[str]  #: what is protected
    members: ClassVar[str]  #: what takes part
    unit: ClassVar[str] = ""  #: of a residual
    differ: ClassVar[str] = "nodes differ by {} of the answer's size"  #: about copies
    method: ClassVar[str] = "optimiser"
    shows: ClassVar[str]  #: a conclusion that does not depend on one change

    def __init__(self, run: Run) -> None:
        self.run, self.problem = run, run.scenario.get("problem") or {}

    @property
    def liar(self) -> str:
        """Who else than the coordinator may lie."""
        return "another node" if self.run.algorithm.pattern == "star" else "neighbour"

    @property
    def clip(self) -> float | None:
        """c, if one record is replaced."""
        clip = part(part(self.run.privacy.get("adjacency"), "replace-one-record"), "clip")
        return clip if isinstance(clip, int | float) else None

    @property
    def who(self) -> str:
        """How many take part."""
        return f"{len(self.run.nodes()) or number(self.run.result.get('nodes'))} {self.members}"

    def hidden(self, adjacency: object, mechanism: str, base_mva: float | None) -> str:
        """The change that is hidden, such as "one active or reactive load moves by at most 0.01 p.u.".

        base_mva: MVA of one p.u., if it is known.
        """
        if isinstance(adjacency, Mapping) and "bounded-change" in adjacency:
            return self.change(adjacency["bounded-change"], mechanism, base_mva)
        return MISSING if adjacency is None else str(adjacency)

    @classmethod
    @abstractmethod
    def change(cls, beta: Any, mechanism: str = "laplace", base_mva: float | None = None) -> str:
        """The bounded change `beta` that is hidden."""

    def larger(self, delta: float | None) -> tuple[str, ...]:
        """What a larger change costs."""
        return ()

    @abstractmethod
    def noise(self, count: str) -> tuple[str, ...]:
        """What each answer of a gate was, and what noise it has. `count`: how many the total counts."""

    @abstractmethod
    def limits(self, more: str) -> tuple[Limit, ...]:
        """What of these data is not protected. `more`: of delta, as the end of a clause."""

    @property
    def pattern(self) -> str:
        """Who spoke with whom."""
        patterns = {"star": "around a coordinator", "token": "handing on a token", "neighbours": "among neighbours"}
        return patterns[self.run.pattern]

    @property
    def verdict(self) -> str:
        """The run in one sentence."""
        run = self.run
        residual = f"consensus residual {number(run.result.get('consensus_residual'))}{self.unit}"
        done = f"{number(run.result.get('rounds_done'))} {UNITS[run.pattern]}"
        return (
            f"{self.who} worked on {self.task} in {done} of {run.algorithm.title}, {self.pattern} "
            f"({residual}{self.violated})."
        )

    @property
    def task(self) -> str:
        """What was worked on."""
        return "one common solution"

    @property
    def violated(self) -> str:
        """How far limits are violated, as the end of a clause."""
        return ""


class Records(Wording):
    """Nodes with records, and one model."""

    whose = "each node's data"
    members = "nodes"
    shows = "what the common model says about everyone alike"
    public = "solution"  #: what of the answer is public

    @classmethod
    def change(cls, beta: Any, mechanism: str = "laplace", base_mva: float | None = None) -> str:
        return (
            f"one node's data change so that its gradient moves by at most {number(beta)} ({_norm(mechanism)}) at "
            "every point"
        )

    def hidden(self, adjacency: object, mechanism: str, base_mva: float | None) -> str:
        if (replaced := part(adjacency, "replace-one-record")) is None:
            return super().hidden(adjacency, mechanism, base_mva)
        k = part(replaced, "records") or 1
        which = "one record of one node is" if k == 1 else f"any {number(k)} records of one node are"
        how = self.bound(part(replaced, "clip"), mechanism)
        return f"{which} replaced by any other{'s' * (k > 1)} (the number of records is public; {how})"

    def bound(self, clip: float, mechanism: str) -> str:
        """What bounds the effect of one record."""
        if self.run.algorithm.asks() == "minimiser":
            return "the loss and the row bound limit what one record can do; nothing is clipped"
        if gated(self.run.algorithm):
            return f"each record's gradient is clipped to {number(clip)}, {_norm(mechanism)}"
        return f"the method takes it for granted that no record's gradient is longer than {number(clip)}"

    def noise(self, count: str) -> tuple[str, ...]:
        algorithm, mechanism = self.run.algorithm, str(self.run.privacy.get("mechanism", "laplace"))
        if algorithm.asks() != "minimiser":
            what = "Each answer is a gradient of a node's data with fresh noise"
        elif algorithm.by_output(mechanism):
            what = (
                "Each answer is a private minimiser: the point where a node's own function plus a public quadratic "
                "is least, with fresh noise (output perturbation)"
            )
        else:
            what = (
                "Each answer is a private minimiser: the point where a node's own function plus a public quadratic "
                "and a fresh random linear term is least (objective perturbation), with a little more noise for what "
                "the solver leaves open"
            )
        sentence = (
            f"{what}, added before anything else sees it; all that travels and all that nodes arrive at is computed "
            f"from such answers. The total counts them, {count}."
        )
        sentence = f"{sentence} {claim_of(algorithm).note(algorithm)}".rstrip()
        if algorithm.asks(self.run.mode) == "gradient" and self.clip is not None:
            return sentence, clipping(self.problem, self.clip, str(self.run.privacy.get("mechanism")))
        return (sentence,)

    def limits(self, more: str) -> tuple[Limit, ...]:
        several = (
            "Several records at once",
            f"one person behind several records, or at several nodes, is group privacy: k count as k times ε{more}.",
        )
        gradients = (
            "What the change is",
            "the promise is about gradients. Replacing a record is such a change only where the loss and the bounds "
            "say so (logistic: where scale times twice the row bound over the number of records is no more; least "
            "squares: never).",
        )
        return (
            (
                "Public by design",
                "the network, the algorithm's settings, the bounds, how many records each node has, and the "
                f"{self.public}.",
            ),
            (
                "Who answers when",
                "the walk, who holds its token, and how often a node has answered are public."
                if self.run.walks
                else "the rounds, and in which of them every node answers, are public.",
            ),
            several if self.clip is not None else gradients,
        )


class Sums(Records):
    """Nodes with records, and a statistic that is added up."""

    shows = "what the sum says"
    method = "sum"
    public = "sum"

    def bound(self, clip: float, mechanism: str) -> str:
        return f"its part of the sum is shortened to {number(clip)}, {_norm(mechanism)}"

    def noise(self, count: str) -> tuple[str, ...]:
        sentence = (
            "Each node has answered once: its part of the sum, with fresh noise, added before anything else sees it."
        )
        if self.clip is None or not STATISTICS[str(self.problem.get("kind"))].shortened:
            return (sentence,)
        norm = _norm(str(self.run.privacy.get("mechanism")))
        return (
            f"{sentence} Records whose columns are longer than {self.clip:g} ({norm}) were shortened to it before: "
            "the noise that is shown is not all of the error, and how much that took is not told.",
        )

    @property
    def verdict(self) -> str:
        run = self.run
        added = STATISTICS[str(self.problem.get("kind"))].added(len(run.tables.get("sum", ())))
        records = number(run.result.get("records"))
        return f"{self.who} added up {added} over {records} records, {self.pattern} ({run.algorithm.title})."


class Zones(Wording):
    """Zones of a grid, and the least load shedding."""

    whose = "each zone's loads"
    members = "zones"
    unit = " p.u."
    differ = "zones differ by {} of the size of what they share"
    shows = "a zone's rough total"
    released = "set-points and flows"  #: what of the answer is public

    @property
    def liar(self) -> str:
        return "another zone"

    @property
    def customer(self) -> bool:
        """Whether a customer is hidden, active and reactive load at once."""
        adjacency = self.run.privacy.get("adjacency")
        change = part(adjacency, "bounded-change")
        pair = isinstance(change, Mapping) and msgspec.convert(change, Change).pair is not None
        return pair or part(adjacency, "day") is not None

    def hidden(self, adjacency: object, mechanism: str, base_mva: float | None) -> str:
        if (change := part(adjacency, "day")) is None:
            return super().hidden(adjacency, mechanism, base_mva)
        day = msgspec.convert(change, Day)
        ratio = day.reactive / day.energy_mwh
        return (
            f"the active load of one bus changes by at most {day.energy_mwh * 1e3:.4g} kWh over the day, in any shape, "
            f"and its reactive load in each period by at most {ratio:.4g} times as much (power factor "
            f"{day.power_factor:g})"
        )

    @classmethod
    def change(cls, beta: Any, mechanism: str = "laplace", base_mva: float | None = None) -> str:
        if isinstance(beta, Mapping):
            change = msgspec.convert(beta, Change)
            if change.pair is None:
                share, digest = 100 * (change.relative or 0.0), change.capacities[:12]
                return (
                    f"one active or reactive load moves by at most {share:.4g} % of its contracted capacity (the "
                    f"public capacities of digest {digest}); an entry without capacity counts as no load"
                )
            p, q = change.pair, change.reactive
            power = f" ({p * base_mva:.4g} MW and {q * base_mva:.4g} MVAr)" if base_mva else ""
            return (
                f"one customer moves the active load of one bus by at most {p:.4g} p.u. and its reactive load by at "
                f"most {q:.4g} p.u.{power}"
            )
        power = f" ({number(beta * base_mva)} MW or {number(beta * base_mva)} MVAr)" if base_mva else ""
        return f"one active or reactive load moves by at most {number(beta)} p.u.{power}"

    def larger(self, delta: float | None) -> tuple[str, ...]:
        more = " (and more than k times δ)." if delta else "."
        several = "k customers" if self.customer else "k loads"
        return (f"A larger change is hidden less: k times the change, or {several} at once, counts as k times ε{more}",)

    def noise(self, count: str) -> tuple[str, ...]:
        if self.run.mode == "input":
            return (
                "Each load was perturbed once; every message is computed from that noisy copy, so more rounds cost "
                "nothing.",
            )
        if self.run.privacy.get("at") == "gradient":
            return (f"Each answer is a gradient with fresh noise; the total counts the answers, {count}.",)
        return (
            "Each answer drew a fresh noisy copy of the loads and was computed from the mean of all copies so far. "
            f"Whoever listens can average them too: the total counts the answers, {count}.",
        )

    def limits(self, more: str) -> tuple[Limit, ...]:
        several = ("Several customers", "several of one bus or of several, count as so many times ε.")
        if not self.customer:
            several = (
                "Several loads at once",
                "a whole bus (its active and reactive load) or several loads changing at once is group privacy: "
                "k changes count as k times ε.",
            )
        return (
            (
                "Public by design",
                f"the network, its limits and costs, the zones, the plan, and all released {self.released}.",
            ),
            *self.knowledge(),
            several,
        )

    def knowledge(self) -> tuple[Limit, ...]:
        """What whom has learnt, of these runs more than of others."""
        return ()

    @property
    def task(self) -> str:
        return f"set-points for {self.problem.get('case')}"

    @property
    def violated(self) -> str:
        worst = self.run.result.get("max_violation")
        return "" if worst is None else f", no limit violated by more than {number(worst)} p.u."


class Dispatched(Zones):
    """Zones of a grid, and the least cost."""

    released = "values, flows and prices"

    @property
    def mask(self) -> str:
        """Which loads there are, by the scenario: "case", "listed", or "" where any load may be other than zero."""
        nonzero = (self.problem.get("loads") or {}).get("nonzero")
        return "" if nonzero is None else "case" if nonzero == "case" else "listed"

    def noise(self, count: str) -> tuple[str, ...]:
        loads = self.mask
        which = {
            "": "Each load was perturbed once: each zone's gate gave one answer, p and q of every bus, load or no "
            "load,",
            "case": "Each load that is other than zero in the public case file was perturbed once: each zone's gate "
            "gave one answer, these p and q",
            "listed": "Each load that the scenario lists was perturbed once: each zone's gate gave one answer, these "
            "p and q",
        }[loads]
        when = " in each period" if self.problem.get("horizon") else ""
        rest = "; every other load counts as zero, without a look at it" if loads else ""
        return (
            f"{which.removesuffix(',')}{when}, with noise{rest}. These are the noisy loads. Everything after it, in "
            "the rounds and at the end, is "
            "computed from that one answer and from what is public (post-processing), so more rounds cost nothing.",
        )

    def knowledge(self) -> tuple[Limit, ...]:
        loads = "noisy loads" if self.run.noisy_loads else "loads"
        status = str((self.run.result.get("ac") or {}).get("status") or "")
        ac = ", from which it computed the AC dispatch" if status == SOLVED else ""
        if not ac and self.problem.get("ac") == "polish":
            ac = ", from which it sought an AC dispatch and found none"
        limits = [
            (
                "What the coordinator knows",
                "during the rounds what each zone would have flow over the lines it shares, its cost and the sums "
                f"of its {loads} served and not served; at the end each zone's {loads} one by one, its whole part of "
                f"the answer, and its prices{ac}.",
            ),
            (
                "What a zone knows of another",
                "in each round a point computed from what both hold of the lines they share; at the end how far the "
                "zones were apart and what came of the AC step, with its own part of it. The tables of this report "
                "are the coordinator's.",
            ),
        ]
        if self.mask:
            what = "those of the case file" if self.mask == "case" else "those the scenario lists"
            limits.append(
                (
                    "Which buses have a load",
                    f"is public: {what} (problem.loads). A load elsewhere counts as zero and is not served by this "
                    "plan.",
                )
            )
        return tuple(limits)

    @property
    def task(self) -> str:
        case = self.run.case
        name = PurePath(str(self.problem.get("case"))).name.removesuffix(".m") if case is None else case.name
        return f"the least cost for {name}"

    @property
    def violated(self) -> str:
        return ""  # that of the relaxation is not that of what is dispatched


WORDINGS: dict[str, type[Wording]] = {"records": Records, "statistics": Sums, "power_flow": Zones}  #: by kind's folder


def wording_of(run: Run) -> Wording:
    """The wording of a run's kind of problem; records' if it has none of its own."""
    if run.least_cost:
        return Dispatched(run)
    return WORDINGS.get(run.kind.folder if run.kind is not None else "", Records)(run)


#: The largest |slope| of a loss: a record's gradient is at most as long, times row_bound.
SLOPE = {"logistic": 1.0, "softmax": sqrt(2)}


def clipping(problem: DocumentView, clip: float, mechanism: str) -> str:
    """What clipping does to what is computed."""
    kind, R = str(problem.get("kind")), problem.get("row_bound")
    if mechanism == "gaussian" and kind in SLOPE and isinstance(R, int | float) and SLOPE[kind] * R <= clip:
        return "No record's gradient can be longer than the clipping bound: clipping changes nothing here."
    if kind == "softmax":
        return (
            "Clipped softmax gradients are the gradients of no function: where clipping shortens any, what the nodes "
            "tend to, noise apart, is set by where the clipped gradients balance, not by the optimum of any loss."
        )
    return (
        "Clipped gradients of this loss are those of a Huberised loss, which is convex too: where clipping shortens "
        "any, it is that loss the nodes work on. An error against the optimum, where one is shown, is against the "
        "loss itself."
    )
