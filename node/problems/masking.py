"""What a plan of masked sums says to both ends: the common grid, each node's share of the noise, the sizes of
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.patterns import masked
from hushgrid.kernels.privacy.shares import Share, shares
from hushgrid.node.privacy.gate import Authority
from hushgrid.node.privacy.terms import Masked, Terms
from hushgrid.node.problems.kind import DeviceFile, Plan
from hushgrid.node.schema.sections import AllowMasked

if TYPE_CHECKING:
    from hushgrid.node.privacy.ledger import Ledger

#: A device's pads in the run of that id, kept in its ledger, among those whom its owner allows now.
#: The last number is what the run's graphs of masks add to delta.
MakeMasks = Callable[[bytes, "Ledger", AllowMasked | None, float], masked.Masks]
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
    (t, how), p = masked_terms(plan), plan.problem
    moves = tuple(p.moved(i, t) for i in range(len(p.nodes)))
    return _shares(t.per_answer, moves, p.size, how.honest)


@lru_cache(maxsize=8)  # in a simulation every node asks for those of all
def _shares(mu: float, moves: tuple[float, ...], size: int, honest: int) -> list[Share]:
    return shares(mu, moves, size, honest)


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
    return share.relying_on(masked_terms(plan)[0].relying_on(authority.honest).masked.honest)  # type: ignore[union-attr]


def numbers(plan: Plan) -> masked.Terms:
    """What both ends must agree on. Raises InputError if a sum of all could pass 2^63 grid steps, where it would
    wrap.
    """
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
    members = plan.nodes if how.graph else ()
    context = masked.NodeContext(name=name, gate=gate, masks=masks, terms=numbers(plan), start=start, members=members)
    return masked.MaskedMember(context, plan.running.rounds)


def none_allowed(node: str) -> Refused:
    """Why a device takes part in no masked run."""
    return Refused(f"{node}: masked sums, its owner allows none (allow.masked)", "masked")


def masks_of(owner: DeviceFile) -> MakeMasks | None:
    """How a device masks, by its certificate and whom its owner trusts; None if the owner allows no masked run.

    Raises InputError if a file that says so is wrong. Those of the authorities are read again for each run, because
    certificates are revoked.
    """
    if (allowed := owner.allow.masked) is None:
        return None
    from hushgrid.node.masks.identity import Identity, trust_of
    from hushgrid.node.masks.run_masks import RunMasks

    tls, node = owner.tls, owner.node
    assert tls is not None  # the device's file was checked
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
