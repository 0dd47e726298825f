"""The file of a coordinator of real devices."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Count, Keepalive, Name, Seconds
from hushgrid.node.config.brokers import check_clear, same_broker, with_servers
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.config.trust import near_trust
from hushgrid.node.problems.power_flow.section import Parts
from hushgrid.node.schema.durations import Duration, seconds
from hushgrid.node.schema.sections import AllowMasked, Fingerprints, Section, Tls
from hushgrid.node.schema.trust import Trusted
from hushgrid.node.schema.yaml_file import convert, read_yaml

#: Keys that hold for as long as the process runs.
FIXED = ("fleet", "broker", "tls", "trust", "state", "plugins", "keepalive")
SHORTEST_S = 1.0  #: of intervals
KEPT = 960  #: runs whose records stay, unless the file says another number


class Continuous(Section, frozen=True, kw_only=True):
    """Runs that begin by themselves."""

    every: Duration  #: from the beginning of one run to that of the next; what was missed is not made up for
    jitter: Duration = "0s"  #: each run begins up to so much later, drawn at random
    warm_start: bool = True  #: each run begins where the last one has ended, if its algorithm can (docs/continuous.md)
    keep: Count = KEPT  #: intervals whose records stay in the directory `state`

    @property
    def every_s(self) -> float:
        return seconds(self.every)

    def check(self, path: Path, wait_s: float, quorum: int | None) -> None:
        """Raises InputError unless the lengths fit each other, and the wait for members, s,
        if there is a quorum without some.
        """
        if self.every_s < SHORTEST_S:
            raise InputError(f"{path}: run.every: found {self.every}, expected at least {SHORTEST_S:g}s")
        if seconds(self.jitter) >= self.every_s:
            raise InputError(f"{path}: run.jitter: found {self.jitter}, expected less than run.every, {self.every}")
        shortest = self.every_s - seconds(self.jitter)  # between two runs that are due
        if quorum is not None and wait_s >= shortest:
            less = "" if shortest == self.every_s else f" less run.jitter, {self.jitter}"
            raise InputError(
                f"{path}: wait_s: found {wait_s:g}, expected less than run.every, {self.every}{less}: the next run "
                "would be due before one of a quorum begins"
            )


class CoordinatorConfig(Section, frozen=True, kw_only=True):
    """`hushgrid coordinator CONFIG`."""

    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port; a list of the servers of a cluster is tried in turn
    tls: Tls | None = None  #: required of mqtts
    #: its owner knows that the broker is reached without encryption over a network (mqtt:// to another machine)
    broker_in_clear: bool = False
    trust: Trusted | None = None  #: whose messages count, of all members [whatever the broker delivers]
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    scenario: str  #: a scenario file, relative to this one
    members: list[Name] | None = None  #: who must take part [the scenario's nodes]
    wait_s: Seconds = 60.0  #: for all members to be there
    silent_s: Seconds = 10.0  #: a member that says nothing for so long in a run ends it
    #: runs that begin by themselves, over and over [one at the start, then one for each SIGUSR1]
    run: Continuous | None = None
    #: the fewest members that a run is made with, if others are absent when wait_s ends, or known to be gone, or refuse
    #: [all of them]
    quorum: Count | None = None
    hold: Duration = "1h"  #: zones: how long an absent one counts as it was last, if there is a quorum without it
    #: another machine waits with `--standby`, and takes over so long after this one's death; the run is told to it
    #: [there is none]
    standby: Duration | None = None
    state: str  #: a directory of its own: ledger and runs
    #: modules from outside whose algorithms may run here, importable where this program runs; no other is imported
    plugins: tuple[str, ...] = ()


def load_coordinator(path: Path) -> CoordinatorConfig:
    """A coordinator's configuration; its relative paths are relative to the file."""
    raw = with_servers(unwrapped(read_yaml(path), "coordinator", path))
    config = convert(raw, CoordinatorConfig, str(path))
    check_clear(f"{path}: ", config.broker, config.broker_in_clear)
    plug(config.plugins, str(path))
    if config.run is not None:
        config.run.check(path, config.wait_s, config.quorum)
    return msgspec.structs.replace(
        config,
        tls=near_tls(config.tls, path),
        trust=near_trust(config.trust, path),
        state=str((path.parent / config.state).resolve()),
        scenario=str((path.parent / config.scenario).resolve()),
    )


class Above(Section, frozen=True, kw_only=True):
    """The fleet of which a site's coordinator is a member, and whom it believes there."""

    #: its name there, as in its certificate: s1, s2, ... by the scenario's `privacy.masked.sites` or `problem.sites`
    site: Name
    fleet: Name  #: that fleet's name
    broker: str  #: that fleet's broker, as below
    tls: Tls  #: with `cert` and `key`, by which the other sites know it
    broker_in_clear: bool = False  #: as below, of this broker
    keepalive: Keepalive = 60  #: as below, of this broker
    peers: Fingerprints | None = None  #: fingerprints of the other sites' certificates, as in a device's `allow.masked`
    ca: str | None = None  #: or the authorities of these, a file
    revoked: Fingerprints | None = None  #: beside `ca`: fingerprints of certificates that are believed no more
    crl: str | None = None  #: beside `ca`: a file with its authorities' lists of revoked certificates
    trust: Trusted | None = None  #: whose messages count, of the fleet's coordinator [whatever its broker delivers]
    #: of zones, in place of `peers`: the public network, as in a device's `data` [its devices mask]
    case: str | None = None
    ignore: Parts = ()  #: beside `case`: what of it is left out, as in the scenario

    @property
    def believed(self) -> AllowMasked:
        """Whose certificates count; numbers are the devices' owners' affair."""
        whose = {"peers": self.peers, "ca": self.ca, "revoked": self.revoked, "crl": self.crl}
        return convert({"corrupt": 0, "honest": 1, "alone": 1.0} | whose, AllowMasked, "above")


class SiteConfig(Section, frozen=True, kw_only=True):
    """`hushgrid coordinator CONFIG` of a site: which run its devices take part in is said above."""

    fleet: Name  #: of the site's devices
    broker: str  #: of the site: mqtt://host:port or mqtts://host:port; a list of a cluster's servers is tried in turn
    tls: Tls | None = None  #: required of mqtts
    #: its owner knows that the broker is reached without encryption over a network (mqtt:// to another machine)
    broker_in_clear: bool = False
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    wait_s: Seconds = 60.0  #: for all devices to be there; then a run is made of those who are, if the plan allows it
    silent_s: Seconds = 10.0  #: a device that says nothing for so long is done without, if the plan allows for it
    state: str  #: a directory of its own: two ledgers
    trust: Trusted | None = None  #: whose messages count, of its devices [whatever its broker delivers]
    above: Above  #: the fleet of sites

    @property
    def budget(self) -> None:
        """It has none: what it hands on is post-processing."""


def is_site(path: Path) -> bool:
    """Whether a coordinator's file is that of a site."""
    raw = read_yaml(path)
    inner = raw.get("coordinator", raw)
    return isinstance(inner, dict) and "above" in inner


def load_site(path: Path) -> SiteConfig:
    """A site's configuration; its relative paths are relative to the file."""
    raw = with_servers(unwrapped(read_yaml(path), "coordinator", path))
    if isinstance(above := raw.get("above"), dict):
        raw |= {"above": with_servers(above)}
    config = convert(raw, SiteConfig, str(path))
    above = config.above
    check_clear(f"{path}: ", config.broker, config.broker_in_clear)
    check_clear(f"{path}: above.", above.broker, above.broker_in_clear)
    if same_broker(config.broker, above.broker):
        raise InputError(
            f"{path}: above.broker: found {above.broker}, the site's own, expected another: the fleet's would see the "
            "site's sums"
        )
    if not (above.tls.cert and above.tls.key):
        raise InputError(f"{path}: above.tls: found no certificate of the site, expected cert and key")

    def absolute(file: str | None) -> str | None:
        return file and str((path.parent / file).resolve())

    tls = near_tls(above.tls, path)
    assert tls is not None
    paths = {"ca": absolute(above.ca), "crl": absolute(above.crl), "trust": near_trust(above.trust, path)}
    above = msgspec.structs.replace(above, tls=tls, **paths)
    if above.case is None:
        above.believed  # noqa: B018  (raises InputError)
    elif (path.parent / above.case).is_file():  # else it is a built-in one
        above = msgspec.structs.replace(above, case=absolute(above.case))
    state = str((path.parent / config.state).resolve())
    trust = near_trust(config.trust, path)
    return msgspec.structs.replace(config, tls=near_tls(config.tls, path), trust=trust, state=state, above=above)
