"""What a plan of masked sums says to both ends: the common grid, each node's share of the noise, the sizes of
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.patterns import masked, sites
from hushgrid.kernels.patterns.star import Prox
from hushgrid.kernels.privacy.masked_sums import Masked
from hushgrid.kernels.privacy.shares import Share, shares
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.gate import Authority
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.kind import DeviceFile, Plan
from hushgrid.node.schema.sections import AllowMasked, Tls

if TYPE_CHECKING:
    from hushgrid.node.privacy.ledger import Ledger

Masks = masked.Masks
#: A device's pads in the run of that id, kept in its ledger, among those whom its owner allows now.
#: The last number is what the run's graphs of masks add to delta.
MakeMasks = Callable[[bytes, "Ledger", AllowMasked | None, float], masked.Masks]
T = TypeVar("T")
PADS = "question"  #: what a pad is named by
WIDE = 40  #: standard deviations that no noise passes
#: A device picks k others; more than MANY k + SOME neighbours it has with a chance below 1e-20
MANY, SOME = 4, 64
INTRODUCTION = 10_000  #: bytes of a certificate with a key and a signature, at most


def masked_terms(plan: Plan) -> tuple[Terms, Masked]:
    """The terms of a plan that masks."""
    assert plan.terms is not None
    assert plan.terms.masked is not None
    return plan.terms, plan.terms.masked


def noise_shares(plan: Plan) -> list[Share]:
    """The share of each node's noise, in the order of the nodes. Raises InputError if no grid holds it."""
    return _once(plan, "noise_shares", lambda: _noise_shares(plan))


def _once(plan: Plan, what: str, make: Callable[[], T]) -> T:
    """What follows from a plan alone, made once: of many nodes in one process each would ask for that of all."""
    memory: dict[str, T] = vars(plan)
    return memory[what] if what in memory else memory.setdefault(what, make())


def _noise_shares(plan: Plan) -> list[Share]:
    (t, how), p = masked_terms(plan), plan.problem
    moves = [p.moved(i, t) for i in range(len(p.nodes))]
    made = shares(t.per_answer, moves, p.size, how.honest)
    return [share._replace(site=how.of_site(i).site) for i, share in enumerate(made)] if how.sites else made


def introduced(plan: Plan) -> int:
    """The most introductions in one message to a device; 0 if nothing is masked."""
    if plan.terms is None or plan.terms.masked is None:
        return 0
    graph = plan.terms.masked.graph
    return len(plan.nodes) if graph is None else min(len(plan.nodes), MANY * graph.neighbours + SOME)


def own_share(plan: Plan, node: str, authority: Authority) -> Share | None:
    """The share of one node, as its owner counts it; None if nothing is masked. Raises InputError as `noise_shares`
    does.
    """
    if plan.terms is None or plan.terms.masked is None:
        return None
    share: Share = noise_shares(plan)[plan.problem.position(node)]
    how, honest = plan.terms.masked, authority.honest
    if how.graph is not None and honest is not None:
        honest = how.believing(min(honest, how.uncorrupted)).honest
    return share.relying_on(honest, authority.honest_at_site)


def numbers(plan: Plan, site: str = "") -> masked.Terms:
    """What both ends must agree on; of two levels above, or in a site. Raises InputError if a sum of all could pass
    2^63 grid steps, where it would wrap.
    """
    terms = _once(plan, "numbers", lambda: _numbers(plan))
    _, how = masked_terms(plan)
    if how.sites is None:
        return terms
    contributors = how.sites.fewest[list(plan.sites).index(site)] if site else how.sites.contributors
    return replace(terms, contributors=contributors)


def _numbers(plan: Plan) -> masked.Terms:
    (t, how), p, n = masked_terms(plan), plan.problem, len(plan.nodes)
    lattice = noise_shares(plan)[0].lattice
    largest = max(p.largest(i, t) for i in range(n)) + WIDE * lattice.scale
    if not n * (largest / lattice.g + 1) < 2.0**62:
        raise InputError(
            f"privacy.masked: found sums of up to {n * largest / lattice.g:.3g} grid steps, expected below 2^62"
        )
    return masked.Terms(
        contributors=how.contributors,
        answers=t.answers,
        g=lattice.g,
        largest=largest,
        neighbours=how.graph.neighbours if how.graph else 0,
        draws=how.graph.draws if how.graph else 1,
    )


def member(plan: Plan, name: str, gate: Any, masks: masked.Masks) -> masked.MaskedMember:
    """The machine of a node. Raises InputError if the plan names pads as this program does not: nothing could be
    decoded.
    """
    _, how = masked_terms(plan)
    if how.pads != PADS:
        rule = how.pads or "round and attempt"
        raise InputError(
            f"{name}: found pads by {rule} (its coordinator runs another version), expected them by {PADS}"
        )
    start = np.zeros(plan.problem.size)
    terms, members = numbers(plan, plan.site_of.get(name, "")), plan.nodes if how.graph else ()
    context = masked.NodeContext(name=name, gate=gate, masks=masks, terms=terms, start=start, members=members)
    return masked.MaskedMember(context, plan.running.rounds)


def centre(plan: Plan, public: Callable[[Vector], Vector], prox: Prox) -> masked.ServerContext:
    """What the coordinator's machine is made from; of two levels the one above. public, prox: as there."""
    _, how = masked_terms(plan)
    fewest = how.sites.fewest if how.sites else ()
    devices = {site: (frozenset(nodes), s) for (site, nodes), s in zip(plan.sites.items(), fewest, strict=True)}
    return masked.ServerContext(
        members=list(devices or plan.nodes),
        terms=numbers(plan),
        start=np.zeros(plan.problem.size),
        public=public,
        prox=prox,
        sites=devices,
    )


def site_member(plan: Plan, site: str, masks: masked.Masks, run: bytes) -> sites.SiteMember:
    """The machine of a site towards the fleet above. run: the run's id there."""
    return sites.SiteMember(site, masks, numbers(plan), np.zeros(plan.problem.size), plan.running.rounds, run)


def site_centre(plan: Plan, site: str, devices: list[str]) -> sites.SiteCentre:
    """The machine of a site towards these devices of it."""
    context = masked.ServerContext(
        members=devices,
        terms=numbers(plan, site),
        start=np.zeros(plan.problem.size),
        public=lambda x: x,
        prox=lambda v, t: v,
    )
    return sites.SiteCentre(context, plan.running.rounds)


def none_allowed(node: str) -> Refused:
    """Why a device takes part in no masked run."""
    return Refused(f"{node}: masked sums, its owner allows none (allow.masked)", "masked")


def masks_of(owner: DeviceFile) -> MakeMasks | None:
    """How a device masks, by its certificate and whom its owner trusts; None if the owner allows no masked run.

    Raises InputError if a file that says so is wrong. Those of the authorities are read again for each run, because
    certificates are revoked.
    """
    if owner.allow.masked is None:
        return None
    assert owner.tls is not None  # the device's file was checked
    return masks_by(owner.node, owner.tls, owner.allow.masked)


def masks_by(node: str, tls: Tls, allowed: AllowMasked) -> MakeMasks:
    """How the one with this name and certificate masks. Raises InputError as `masks_of` does."""
    from hushgrid.node.masks.identity import Identity, trust_of
    from hushgrid.node.masks.run_masks import RunMasks

    files = tls.cert or "", tls.key or ""
    identity = Identity.read(node, *files)
    trust_of(allowed, tls)

    def masks(run: bytes, ledger: Ledger, allowed: AllowMasked | None, exposed: float = 0.0) -> masked.Masks:
        """Raises Refused if the run is new, and the certificate as its files hold it is not valid now."""
        nonlocal identity
        if allowed is None:
            raise none_allowed(node)
        with suppress(InputError):  # it is being replaced: the one before counts on
            identity = Identity.read(node, *files)
        if ledger.runs.find(run) is None and (wrong := identity.untimely()) is not None:
            raise Refused(f"{node}: {wrong}, by its own clock", "certificate")
        try:
            trust = trust_of(allowed, tls)
        except InputError:  # which names files: they are the owner's affair
            raise Refused(f"{node}: whom its owner trusts cannot be read any more (allow.masked)", "masked") from None
        return RunMasks(node, run, ledger, identity, trust, exposed)

    return masks
