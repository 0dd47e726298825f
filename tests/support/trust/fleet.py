"""A fleet in this process whose ends have `trust:`: the memory transport between guards."""

from __future__ import annotations

from typing import NamedTuple

from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.node.masks.identity import Identity, Trust, made_up
from hushgrid.node.trust.guarded import Guarded
from hushgrid.node.wire import COORDINATOR
from tests.support.devices.zone_fleet import World


class Fixed(NamedTuple):
    """Credentials that stay as they are."""

    identity: Identity
    trust: Trust


def peers_of(end):
    """The names of those whose messages an end needs."""
    return (lambda: end.members) if end.name == COORDINATOR else (lambda: end.peers)


class Known(Guarded):
    """An end behind its guard that a simulation may look at as if it were the end itself."""

    def __getattr__(self, name):
        return getattr(self.end, name)


class TrustedBroker(MemoryBroker):
    """Every end is behind a guard, with a certificate that the others have pinned; it has it after a restart too."""

    def __init__(self, endpoints, rebuild, *args, **options):
        ends = list(endpoints)
        self.identities, _ = made_up(end.name for end in ends)
        self.trust = Trust({name: identity.fingerprint for name, identity in self.identities.items()})
        super().__init__(map(self.guarded, ends), lambda name: self.guarded(rebuild(name)), *args, **options)

    def guarded(self, end):
        return Known(end, Fixed(self.identities[end.name], self.trust), peers_of(end))


class TrustedWorld(World):
    """A world behind guards. `world[name]` is the end itself, `world.guard(name)` what stands before it."""

    def __init__(self, directory, setup, *, broker=TrustedBroker, **options):
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, setup, broker=broker, **options)

    def __getitem__(self, name):
        return self.hub.endpoints[name].end

    def guard(self, name):
        return self.hub.endpoints[name].guard
