"""What a run asks of each node's gate, and what that costs: the privacy section of a scenario, resolved and checked."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, inf, sqrt
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Algorithm, claims_epsilon, mechanisms
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy import accounting, schedule
from hushgrid.kernels.privacy.mask_graphs import MaskGraph, fewest_neighbours, fewest_shares
from hushgrid.kernels.privacy.masked_sums import Masked, MaskedSites
from hushgrid.kernels.ranges import MOST_MASKED
from hushgrid.node.schema.sections import ROUNDED, Masking, Privacy, Sites

EXPOSED = 1e-9  #: what graphs of masks add to delta, unless a scenario says another number
#: Answers beyond the rounds of a masked run in which devices may be missing: so many, and one for so many rounds.
SPARE = (2, 10)
#: Why pure-optimal is refused beside a window.
NOT_OPTIMAL = "pure-optimal needs the number of all answers beforehand"


class Terms(Struct, frozen=True):
    """What a plan asks of each node's gate: how the gate answers, how often at most, and what all answers cost."""

    mechanism: Literal["laplace", "gaussian"]
    adjacency: str  #: the neighbouring relation and its unit, in words
    #: the bounded change: p.u. of a load (relative: 1, counted in each load's own beta_i; day: MWh), or the norm of a
    #: gradient's change; 0 under replace-one-record
    beta: float
    mode: Literal["objective", "input", "output", "output-projected"]
    at: Literal["data", "gradient"]
    published: bool  #: the noise stands where the paper puts it, not at the gate
    accountant: str
    answers: int  #: the cap: the most answers of the node in the run
    per_answer: float  #: epsilon (laplace) or mu (gaussian) of one answer
    paper_epsilon: float  #: the epsilon of one answer in which the paper's scales and (E.1) are written
    paper_delta: float | None
    delta: float  #: of the whole run; 0 for pure epsilon
    epsilon: float  #: claimed for the whole run of this node
    rounds: int  #: rounds after which the run ends: with the one in which the first cap is reached
    capped: bool  #: whether the cap leaves fewer rounds than the algorithm's section has
    clip: float = 0.0  #: c, if the adjacency is replace-one-record; else 0
    records: int = 1  #: how many records one change replaces
    step: float = 0.0  #: alpha beta with alpha the largest alpha_i, of published DP-RECAL (Lemma 5)
    decay: float = 1.0  #: R >= 1 of the same noise, which shrinks answer by answer: sigma_k^2 = R sigma_{k+1}^2
    pair: bool = False  #: q_i moves together with p_i
    reactive: float = 0.0  #: by at most so much, p.u.: beta tan(phi), rounded up
    day: bool = False  #: beta is the energy, MWh, of a change that is spread over all periods; `reactive` MVArh
    relative: float = 0.0  #: beta_i is this share of the capacity of entry i; 0: it is no relative change
    capacities: str = ""  #: SHA-256 digest of those capacities
    release: Literal["plain", "totals"] = "plain"
    masked: Masked | None = None
    pointwise: bool = False  #: noise is scaled by what a record can move a gradient at the very point

    growth: float = (
        1.0  #: of a public schedule: mu_k^2 of answer k is in proportion to growth^k; 1: all answers cost alike
    )

    def price(self, answer: int) -> float:
        """Epsilon (laplace) or mu (gaussian) of an answer, counted from 1."""
        if self.growth == 1:
            return self.per_answer
        return schedule.prices(self.per_answer, self.growth, self.answers)[min(answer, self.answers) - 1]

    @property
    def noisiest(self) -> int:
        """The number of the answer that costs least."""
        return self.answers if self.growth < 1 else 1

    def totals(self, answers: int, k: int = 1, after: int = 0) -> accounting.Totals:
        """What the answers after + 1 to `answers` cost, by group privacy of k, as the accountant counts them."""
        found = accounting.Totals()
        if self.growth != 1:
            found.include(schedule.totals(self.per_answer, self.growth, self.answers, after, answers), k)
        else:
            found.add(accounting.grouped(self.event, k), answers - after)
        return found

    @property
    def event(self) -> accounting.Event:
        """One answer of an even schedule, as the accountant counts it."""
        return (
            accounting.Laplace(self.per_answer) if self.mechanism == "laplace" else accounting.Gaussian(self.per_answer)
        )

    @property
    def norm(self) -> float:
        """How far one change moves the loads, in the norm of the mechanism: L1 (laplace) or L2; p.u. (relative: 1).

        Of a day in MWh: sum_t (|dp_t| + |dq_t|) h is at most E (1 + tan phi), whatever its shape, and no norm is larger
        than where all of it stands in one period.
        """
        if not self.pair:
            return self.beta
        moved = self.beta + self.reactive if self.mechanism == "laplace" else hypot(self.beta, self.reactive)
        return moved * (1 + ROUNDED)

    def relying_on(self, honest: int | None, site: int | None = None) -> Terms:
        """The same as an owner counts it who believes in so many honest contributors at most [as many as the plan].

        With fewer of them the same noise is worth more: mu sqrt(h/h'). `site`: in the device's own site.
        """
        m = self.masked
        if m is not None and site is not None and site < m.site:
            return replace(self, masked=replace(m, site=site)).relying_on(honest)
        if m is None or honest is None or honest >= m.uncorrupted:
            return self
        return self._counted(m, m.believing(honest))

    def counted_at(self, shares: int | None, site: int | None = None) -> Terms:
        """The same as a ledger has counted it, by so many honest shares in a sum [as many as the plan].

        `site`: in the device's own site.
        """
        m = self.masked
        if m is None or m.graph is None:
            return self.relying_on(shares, site)
        if shares is None or shares >= m.honest:
            return self
        return self._counted(m, replace(m, shares=shares))

    def _counted(self, m: Masked, believed: Masked) -> Terms:
        mu = self.per_answer * sqrt(m.honest / believed.honest) * (1 + ROUNDED)
        counted = replace(self, per_answer=mu, masked=believed)
        return replace(counted, epsilon=counted.cost(counted.answers))

    def at_site(self, answers: int | None = None) -> float:
        """Epsilon of so many answers [all] against the own site's coordinator: only its site's shares are left."""
        count = self.answers if answers is None else answers
        if self.masked is None or not self.masked.site or not count:
            return self.cost(count)
        mu = self.per_answer * sqrt(self.masked.honest / self.masked.site) * (1 + ROUNDED)
        return accounting.claimed_epsilon(self.accountant, mu, count, self.delta)

    def alone(self, answers: int | None = None) -> float:
        """Epsilon of so many answers [all] against everybody else: of a masked one the node's own share of the noise is
        left.
        """
        count = self.answers if answers is None else answers
        if self.masked is None or not count:
            return self.cost(count)
        share = self.per_answer * sqrt(self.masked.honest) * (1 + ROUNDED)
        return accounting.claimed_epsilon(self.accountant, share, count, self.delta)

    def cost(self, answers: int, k: int = 1) -> float:
        """The total epsilon of the first so many answers, by group privacy of k, at the run's delta, by its
        accountant.
        """
        if answers == 0:
            return 0.0
        if self.growth != 1:
            return accounting.spent_epsilon(self.accountant, self.totals(answers, k), self.delta)
        one = accounting.grouped(self.event, k)
        assert isinstance(one, accounting.Laplace | accounting.Gaussian)
        value = one.epsilon if isinstance(one, accounting.Laplace) else one.mu
        return accounting.claimed_epsilon(self.accountant, value, answers, self.delta)


def terms(privacy: Privacy | None, algorithm: Algorithm, visits: int = 0, nodes: int = 0) -> Terms | None:
    """The terms of a plan for one node; None if the run has no privacy (variant none, or no section).

    `visits`: activations that the node is to answer, if a token walks. nodes: their number. Raises InputError if the
    cap leaves no round, or the nodes are too few for masked sums.
    """
    if privacy is None or algorithm.variant == "none":
        return None
    p = privacy
    if isinstance(p.answers, tuple):
        raise InputError(f"privacy.answers: found {len(p.answers)} numbers, expected one (of one node)")
    answers, rounds = algorithm.capped(p.answers, p.mode, visits)
    masked = masked_of(p, nodes)
    if masked is not None and masked.spares(nodes):  # a round may be asked again
        answers = p.answers or rounds + SPARE[0] + -(-rounds // SPARE[1])
        if masked.graph is not None:  # of a smaller set
            masked = _checked(replace(masked, graph=masked.graph._replace(draws=1 + max(answers - rounds, 0))))
    if p.growth != 1:
        schedule.check(p.growth, answers)
    accountant = p.accountant or ("zcdp" if p.mechanism == "gaussian" else "pure-basic")
    delta = p.delta or (p.per_answer.delta if p.per_answer else None) or 0.0
    if p.per_answer:
        per_answer = p.per_answer.epsilon
        if p.mechanism == "gaussian":
            sigma = accounting.per_answer_paper("gaussian", p.per_answer.epsilon, p.per_answer.delta, 1.0)
            per_answer = 1.0 / sigma
    else:
        assert p.epsilon is not None
        per_answer = accounting.calibrate(accountant, p.epsilon, delta, answers)
    change = p.adjacency.of_loads
    paper_epsilon = p.per_answer.epsilon if p.per_answer else (p.epsilon or inf) / answers
    t = Terms(
        mechanism=p.mechanism,
        adjacency=str(p.adjacency),
        beta=(change.pair or 1.0) if change else p.adjacency.beta,
        mode=p.mode,
        at=p.at,
        published=algorithm.variant == "published"
        and algorithm.published is not None
        and algorithm.published.source == "paper",
        accountant=accountant,
        answers=answers,
        per_answer=per_answer,
        paper_epsilon=paper_epsilon,
        paper_delta=p.per_answer.delta if p.per_answer else p.delta,
        delta=delta,
        epsilon=0.0,
        rounds=rounds,
        capped=rounds < algorithm.rounds,
        clip=p.adjacency.replace_one_record.clip if p.adjacency.replace_one_record else 0.0,
        records=p.adjacency.records,
        pair=change is not None and change.pair is not None,
        reactive=change.reactive if change else 0.0,
        day=bool(p.adjacency.day),
        relative=(change.relative or 0.0) if change else 0.0,
        capacities=change.capacities if change else "",
        release=p.release or "plain",
        pointwise=p.sensitivity == "pointwise",
        masked=masked,
        growth=p.growth,
    )
    return replace(t, epsilon=p.epsilon if p.epsilon is not None else t.cost(answers))


def masked_of(p: Privacy, nodes: int) -> Masked | None:
    """How the sums over so many nodes are masked. Raises InputError if they are too few."""
    if not p.masked:
        return None
    k = p.masked.neighbours or 0
    if p.masked.sites:
        return _masked_sites(p.masked, p.masked.sites, nodes)
    if nodes > MOST_MASKED and not k:
        raise InputError(
            f"privacy.masked: found {nodes} nodes that mask all with all, expected at most {MOST_MASKED}, neighbours "
            "or sites"
        )
    found = Masked(p.masked.corrupt, p.masked.contributors or nodes, p.masked.pads or "")
    if not 2 <= found.contributors <= nodes:
        raise InputError(
            f"privacy.masked.contributors: found {found.contributors} of {nodes} nodes, expected 2 to {nodes}"
        )
    if found.honest < 1:
        raise InputError(
            f"privacy.masked.corrupt: found {found.corrupt} of {found.contributors} contributors, expected fewer than "
            "these"
        )
    if not k:
        return found
    if k >= found.contributors:
        raise InputError(
            f"privacy.masked.neighbours: found {k} of {found.contributors} contributors, expected fewer than these"
        )
    graph = MaskGraph(nodes, found.contributors, found.corrupt, k)
    return _checked(replace(found, graph=graph, exposed=p.masked.exposed or EXPOSED))


def _checked(masked: Masked) -> Masked:
    """Raises InputError if each device masks with too few others."""
    graph = masked.graph
    assert graph is not None
    if not fewest_shares(graph, masked.exposed):
        raise InputError(
            f"privacy.masked.neighbours: found {graph.neighbours}, expected at least "
            f"{fewest_neighbours(graph, masked.exposed, 0.0)} ({graph.nodes} nodes, {graph.corrupt} corrupt, exposed "
            f"{masked.exposed:g})"
        )
    return masked


def _masked_sites(p: Masking, sites: Sites, nodes: int) -> Masked:
    """How they are masked in two levels. Raises InputError if a level has too few, or the sites are not of all
    nodes.
    """
    sizes = sites.dealt(nodes)
    m, c = sites.contributors or len(sizes), sites.corrupt or 0
    smallest = min(sizes)
    s = p.contributors or smallest
    fewest = tuple(p.contributors or size for size in sizes)
    masked = Masked(p.corrupt, s, p.pads or "", sites=MaskedSites(sizes, fewest, c, m), site=s - p.corrupt)
    for key, fits, actual, expected in (
        ("neighbours", not p.neighbours, f"{p.neighbours or 0}", "none beside sites: each was proved by itself"),
        ("sites", sum(sizes) == nodes, f"sites of {sum(sizes)} nodes", f"of {nodes}"),
        ("sites", 2 <= len(sizes) <= MOST_MASKED, f"{len(sizes)} sites", f"2 to {MOST_MASKED}"),
        ("sites", smallest >= 1, f"{len(sizes)} sites of {nodes} nodes", "2 nodes of each at least"),
        ("sites", max(sizes) <= MOST_MASKED, f"a site of {max(sizes)} nodes", f"at most {MOST_MASKED}"),
        ("contributors", 2 <= s <= smallest, f"{s} of a site of {smallest} nodes", f"2 to {max(smallest, 2)}"),
        ("corrupt", p.corrupt < s, f"{p.corrupt} of a site's {s} contributors", "fewer than these"),
        ("sites.contributors", 2 <= m <= len(sizes), f"{m} of {len(sizes)} sites", f"2 to {len(sizes)}"),
        ("sites.corrupt", c < m, f"{c} of {m} sites", "fewer than these"),
    ):
        if not fits:
            raise InputError(f"privacy.masked.{key}: found {actual}, expected {expected}")
    return masked


def check_privacy(p: Privacy | None, algorithm: Algorithm, records: bool, file: str) -> None:
    """Raises InputError if keys of the privacy section contradict each other or the algorithm's variant.

    Scenarios and received plans are checked alike. `records`: whether the private data are records, of which one can be
    replaced; otherwise they are quantities that change. `file`: what the error names.
    """
    variant, name, claims = algorithm.variant, algorithm.name, claims_epsilon(algorithm)

    def wrong(key: str, value: str, expected: str) -> InputError:
        return InputError(f"{file}: {key}: found {value}, expected {expected}")

    if p is None:
        if claims:
            raise wrong("privacy", "nothing", f"a privacy section (variant {variant}), or algorithm.variant: none")
        return
    if not claims:
        why = (
            "algorithm.variant: none" if variant == "none" else f"published {name} takes its paper's noise, no epsilon"
        )
        raise wrong("privacy", "a privacy section", f"none ({why})")
    change, replaced = p.adjacency.of_loads or p.adjacency.bounded_change, p.adjacency.replace_one_record
    if p.adjacency.day and p.adjacency.bounded_change is not None:
        raise wrong("privacy.adjacency", "two adjacencies", "one")
    if change is not None and replaced is not None:
        raise wrong("privacy.adjacency", "two adjacencies", "one")
    if change is None and (replaced is None or not records):
        expected = "replace-one-record or bounded-change" if records else "bounded-change (problem.kind: zones)"
        raise wrong("privacy.adjacency", str(p.adjacency) or "{}", expected)
    if records:
        for key, given, default in (("at", p.at, "data"), ("release", p.release or "plain", "plain")):
            if given != default:
                raise wrong(f"privacy.{key}", given, "none (it is for zones)")
    _check_unit(p, variant, records, wrong)
    _check_pointwise(p, algorithm, wrong)
    _check_masked(p, algorithm, records, wrong)
    _check_schedule(p, algorithm, records, wrong)
    if (p.epsilon is None) == (p.per_answer is None):
        stated = "neither epsilon nor per_answer" if p.epsilon is None else "both epsilon and per_answer"
        raise wrong("privacy.epsilon", stated, "one of them")
    gaussian = p.mechanism == "gaussian"
    allowed = ("zcdp", "gdp") if gaussian else ("pure-basic", "pure-optimal")
    accountant = p.accountant or allowed[0]
    if accountant not in allowed:
        raise wrong("privacy.accountant", accountant, f"{' or '.join(allowed)} (mechanism {p.mechanism})")
    if p.mechanism not in mechanisms(algorithm):
        of = f"published {name}" if variant == "published" else f"{name}, private minimisers by objective perturbation"
        raise wrong("privacy.mechanism", p.mechanism, f"{' or '.join(mechanisms(algorithm))} ({of})")
    delta = p.delta or (p.per_answer.delta if p.per_answer else None)
    if delta is None and (gaussian or accountant == "pure-optimal"):
        raise wrong(
            "privacy.delta", "nothing", f"a number between 0 and 1 ({'gaussian' if gaussian else 'pure-optimal'})"
        )
    if delta is not None and accountant == "pure-basic":
        raise wrong("privacy.delta", repr(delta), "none (pure-basic), or accountant: pure-optimal")
    if p.per_answer and p.per_answer.delta is None and gaussian:
        raise wrong("privacy.per_answer.delta", "nothing", "a number between 0 and 1 (gaussian)")
    modes = tuple(mode for mode in algorithm.modes if not (records and mode == "input"))
    if p.mode not in modes:
        raise wrong("privacy.mode", p.mode, f"{' or '.join(modes)} (algorithm.name: {name})")
    if p.mode.startswith("output") and variant != "published":
        raise wrong("privacy.mode", p.mode, "objective or input (output perturbation exists as variant: published)")
    if p.mode == "input" and variant == "published":
        raise wrong("privacy.mode", p.mode, "objective, output or output-projected (variant: published)")
    if p.at == "gradient" and p.mode != "objective":
        raise wrong("privacy.at", "gradient", f"data (mode: {p.mode})")
    if p.release == "totals" and (p.mode != "input" or gaussian):
        raise wrong(
            "privacy.release", "totals", f"plain ({f'mode: {p.mode}' if not gaussian else 'mechanism: gaussian'})"
        )
    _check_budget(p, wrong)


def _check_budget(p: Privacy, wrong: Callable[[str, str, str], InputError]) -> None:
    """Raises InputError if the nodes' budget cannot count what the run asks."""
    if p.budget is None:
        return
    if p.budget.adjacency and str(p.budget.adjacency) != str(p.adjacency):
        raise wrong("privacy.budget.adjacency", str(p.budget.adjacency), f"{p.adjacency}, the run's own")
    if p.accountant == "pure-optimal" and p.budget.window is not None:
        raise wrong("privacy.accountant", p.accountant, f"pure-basic (privacy.budget.window: {NOT_OPTIMAL})")


def _check_pointwise(p: Privacy, algorithm: Algorithm, wrong: Callable[[str, str, str], InputError]) -> None:
    """Raises InputError if noise is to follow the point that is asked for, where no gate can scale it so."""
    if p.sensitivity != "pointwise":
        return
    for key, fits, found, expected in (
        ("privacy.adjacency", p.adjacency.replace_one_record is not None, str(p.adjacency), "replace-one-record"),
        ("privacy.mechanism", p.mechanism == "gaussian", p.mechanism, "gaussian"),
        ("algorithm", algorithm.asks(p.mode) == "gradient", algorithm.name, "an algorithm that asks for gradients"),
        ("algorithm.variant", algorithm.variant == "guarded", algorithm.variant, "guarded"),
    ):
        if not fits:
            raise wrong(key, found, f"{expected} (privacy.sensitivity: pointwise)")


def _check_masked(
    p: Privacy, algorithm: Algorithm, records: bool, wrong: Callable[[str, str, str], InputError]
) -> None:
    """Raises InputError if sums are to be masked that are no sums of gate answers at a point that all were sent."""
    if not p.masked:
        return
    if not records or (why := algorithm.unmasked) is not None:
        raise wrong("privacy.masked", "a section", f"none ({why if records else 'it is for records'})")
    for key, fits, found, expected in (
        ("privacy.mechanism", p.mechanism == "gaussian", p.mechanism, "gaussian"),
        ("privacy.adjacency", p.adjacency.replace_one_record is not None, str(p.adjacency), "replace-one-record"),
        ("privacy.sensitivity", p.sensitivity != "pointwise", "pointwise", "uniform"),
        ("privacy.schedule", p.growth == 1, f"growth {p.growth:g}", "none"),
    ):
        if not fits:
            raise wrong(key, found, f"{expected} (privacy.masked)")


def _check_schedule(
    p: Privacy, algorithm: Algorithm, records: bool, wrong: Callable[[str, str, str], InputError]
) -> None:
    """Raises InputError if answers are to cost unequally, where no gate counts them so."""
    if p.growth == 1:
        return
    for key, fits, found, expected in (
        ("privacy.schedule", records, f"growth {p.growth:g}", "none (it is for records)"),
        ("privacy.mechanism", p.mechanism == "gaussian", p.mechanism, "gaussian (privacy.schedule)"),
        (
            "algorithm",
            algorithm.asks(p.mode) == "gradient",
            algorithm.name,
            "an algorithm that asks for gradients (privacy.schedule)",
        ),
        ("algorithm.variant", algorithm.variant == "guarded", algorithm.variant, "guarded (privacy.schedule)"),
    ):
        if not fits:
            raise wrong(key, found, expected)


def _check_unit(p: Privacy, variant: str, records: bool, wrong: Callable[[str, str, str], InputError]) -> None:
    """Raises InputError if the change is one of loads, or of several records, and the run cannot hide such a one."""
    if variant == "published" and (k := p.adjacency.records) > 1:
        raise wrong("privacy.adjacency.replace-one-record.records", str(k), "none (variant: published)")
    change = p.adjacency.of_loads
    if change is None:
        return
    key, kind = "bounded-change", "pair" if change.pair is not None else "relative"
    if p.adjacency.day:
        key, kind = "day", "a day"
    if records or variant == "published":
        of = "a day is" if p.adjacency.day else "pair and relative are"
        why = f"{of} of zones" if records else "variant: published"
        raise wrong(f"privacy.adjacency.{key}", kind, f"a number ({why})")
    if p.at == "gradient":
        raise wrong("privacy.at", "gradient", f"data ({key}: {kind})")
