"""What stands in the directory of a fleet on its operator's machine.

    fleet.yaml         the fleet's name, its broker's URL and kind, its scenario
    identities.json    who is enrolled: names, roles, numbers, fingerprints, ends, who is put out
    ca.key, ca.crt     the authority; the key belongs elsewhere
    NAME.crt           a certificate an identity
    scenario.yaml, coordinator.yaml, watch.yaml
    NAME/              all that a member's box needs but its key, where it was added later or no broker is trusted
    broker/            all that a broker reads
    broker-NAME/       the same, of a site whose broker is bridged to that one

No private key of a box is ever here. That of a broker is, in its certs/: it is made with the directory, and goes where
broker/ goes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding

from hushgrid import deploy
from hushgrid.broker.enrolment.authority import (
    Authority,
    Request,
    check_name,
    fingerprint,
    now,
    read_certificate,
    write_key,
)
from hushgrid.broker.enrolment.lists.access import Access, Role, access_of, members_of
from hushgrid.broker.enrolment.lists.bridges import BridgeSection, check_bridges, connection, lower, upper
from hushgrid.broker.enrolment.lists.choose import BRIDGED, BrokerKind, broker_files, check_servers
from hushgrid.broker.enrolment.lists.place import BROKER, owner
from hushgrid.broker.standby.replica import STANDBY
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Name
from hushgrid.node.config.brokers import with_servers
from hushgrid.node.config.scenario import Scenario, load_scenario
from hushgrid.node.config.watch import WATCH
from hushgrid.node.durable import write_file
from hushgrid.node.schema.sections import Section
from hushgrid.node.schema.yaml_file import convert, read_yaml
from hushgrid.node.transport.connect import parse_urls, split
from hushgrid.node.wire import COORDINATOR

CLUSTER_SILENT_S = 60  #: of a coordinator whose broker is a cluster: an election takes up to 17 s
SITES_SILENT_S = 100  #: of one whose members are sites: each waits a minute for its devices, and asks them again
CRL = "crl.pem"  #: the authority's list of revoked certificates
ABOVE = "above-ca.crt"  #: the authority of the fleet above a site
ROLES: dict[str, Role] = {COORDINATOR: "coordinator", STANDBY: "standby", WATCH: "watch", BROKER: "broker"}


class FleetFile(Section, frozen=True, kw_only=True):
    """fleet.yaml."""

    fleet: Name
    broker: str  #: mqtts://host:port; of a cluster several, with commas between them
    kind: BrokerKind = "mosquitto"
    scenario: str = "scenario.yaml"
    bridges: dict[Name, BridgeSection] = msgspec.field(default_factory=dict)  #: sites with a broker of their own
    site: Name | None = None  #: whose devices they are, of a scenario in two levels; None: of its sites, or all nodes
    trust: bool = False  #: whether the files of all ends have `trust:`


class Broker(NamedTuple):
    """One broker of a fleet, on a machine of its own."""

    folder: Path  #: what it reads
    urls: str
    access: Access
    more: str = ""  #: in its configuration


class Issued(msgspec.Struct, kw_only=True):
    """One certificate that was made."""

    serial: str  #: hexadecimal
    fingerprint: str  #: of its key
    begins: datetime
    ends: datetime
    revoked: datetime | None = None


class Identity(msgspec.Struct, kw_only=True):
    """One name, and its certificates: the newest last."""

    name: str
    role: Role
    state: Literal["enrolled", "revoked"] = "enrolled"
    certificates: list[Issued] = []

    @property
    def newest(self) -> Issued:
        return self.certificates[-1]


class FleetDirectory:
    """The directory of one fleet. Every change is on the disk when its method returns."""

    def __init__(self, path: Path) -> None:
        """Raises InputError if it is none."""
        self.path = path
        if not (path / "fleet.yaml").is_file():
            raise InputError(f"{path}: found no fleet.yaml, expected a fleet's directory (hushgrid fleet init)")
        file = convert(with_servers(read_yaml(path / "fleet.yaml")), FleetFile, str(path / "fleet.yaml"))
        self.fleet, self.broker, self.kind, self.bridges = file.fleet, file.broker, file.kind, file.bridges
        self.site, self.trust = file.site or "", file.trust
        self.scenario_file = path / file.scenario
        self.identities = _identities(path / "identities.json")

    @classmethod
    def make(cls, path: Path, file: FleetFile, scenario: Path, ca_key: Path | None = None) -> FleetDirectory:
        """A new one, with a new authority, whose key goes to `ca_key`, and the broker's own key and certificate.

        Raises InputError if it is there, or something is wrong.
        """
        _hosts(file.broker)
        check_servers(file.kind, parse_urls(file.broker))
        nodes = members_of(load_scenario(scenario), str(scenario), file.site or "")
        _check_bridges(file, nodes)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path}: found an existing path, expected a new directory")
        key_file = ca_key or path / "ca.key"
        if key_file.exists():
            raise InputError(f"{key_file}: found an existing file, expected none: it may be another fleet's key")
        path.mkdir(parents=True, exist_ok=True)
        _copy_scenario(scenario, path)
        authority = Authority.make(file.fleet)
        write_key(authority.key, key_file)
        write_file(path / "ca.crt", authority.certificate.public_bytes(Encoding.PEM))
        write_file(path / "identities.json", b"{}")
        lines = [
            f"{key}: {value}\n" for key, value in msgspec.to_builtins(file).items() if value not in (None, {}, False)
        ]
        write_file(path / "fleet.yaml", "".join(lines).encode())
        made = cls(path)
        for name in (BROKER, *made.bridges):
            certs = made.folder(name) / "certs"
            certs.mkdir(mode=0o700, parents=True)
            key = ec.generate_private_key(ec.SECP256R1())
            write_key(key, certs / "broker.key")
            made._put(name, made._sign_broker(name, key.public_key(), authority))
        made.write_list(authority)
        return made

    # --- who is there ---

    def names(self) -> list[str]:
        """Every name that has been enrolled, sorted; those that were put out too."""
        return sorted(self.identities)

    def identity(self, name: str) -> Identity:
        """Raises InputError if it has never been enrolled."""
        if name not in self.identities:
            raise InputError(f"{self.path}: found no {name}, expected one of {', '.join(self.names())}")
        return self.identities[name]

    def certificate(self, name: str) -> x509.Certificate:
        """The newest one of a name. Raises InputError if it has none."""
        self.identity(name)
        return read_certificate(self.path / f"{name}.crt")

    def pinned(self, name: str) -> str:
        """What the files of others say of its newest certificate (`peers`): SHA-256, in hexadecimal."""
        return sha256(self.certificate(name).public_bytes(Encoding.DER)).hexdigest()

    def authority(self, ca_key: Path | None = None) -> Authority:
        """By the key in `ca_key` [ca.key of this directory]. Raises InputError if it is not there."""
        return Authority.read(ca_key or self.path / "ca.key", self.path / "ca.crt")

    def scenario(self) -> Scenario:
        """Raises InputError if it is wrong."""
        return load_scenario(self.scenario_file)

    def members(self) -> list[str]:
        """As `members_of`."""
        return members_of(self.scenario(), str(self.scenario_file), self.site)

    @property
    def of_sites(self) -> bool:
        """Whether its members are sites."""
        return not self.site and self.members() != self.scenario().kind.public(self.scenario(), "").nodes

    def is_out(self, name: str) -> bool:
        """Whether a name has been put out, and not been enrolled again."""
        return name in self.identities and self.identities[name].state == "revoked"

    # --- who comes and goes ---

    def enrol(self, name: str, request: Request, authority: Authority) -> x509.Certificate:
        """A first certificate for `name`, or the first after it was put out.

        Raises InputError if the request is for another name, or the name is enrolled.
        """
        self._check(name, request)
        if name in self.identities and self.identities[name].state == "enrolled":
            raise InputError(
                f"{name}: found it enrolled, expected a new name (hushgrid fleet renew {self.path} {name})"
            )
        return self._signed(name, request, authority)

    def renew(self, name: str, request: Request, authority: Authority, now_only: bool = False) -> x509.Certificate:
        """A further certificate for a name that is enrolled. The older ones stay valid, unless `now_only`."""
        self._check(name, request)
        identity = self.identity(name)
        if identity.state != "enrolled":
            raise InputError(f"{name}: found it revoked, expected one that is enrolled (hushgrid fleet enrol)")
        older = list(identity.certificates)
        signed = self._signed(name, request, authority)
        if now_only:
            self.retire(older, authority)
        return signed

    def retire(self, certificates: list[Issued], authority: Authority) -> None:
        """Puts certificates on the list of revoked ones."""
        for one in certificates:
            one.revoked = one.revoked or now()
        self._save()
        self.write_list(authority)

    def revoke(self, name: str, authority: Authority) -> Identity:
        """Puts a name out: all its certificates are on the list. Raises InputError if it is not enrolled."""
        identity = self.identity(name)
        if name == BROKER:
            raise InputError(f"{name}: found the broker, expected a client: nobody asks for lists about a broker")
        identity.state = "revoked"
        self.retire(identity.certificates, authority)
        return identity

    def _check(self, name: str, request: Request) -> None:
        check_name(name)
        if request.name != name:
            raise InputError(f"the request: found it for {request.name or 'nobody'}, expected one for {name}")

    def _signed(self, name: str, request: Request, authority: Authority) -> x509.Certificate:
        if self._is_broker(name):
            signed = self._sign_broker(name, request.key, authority)
            (self.folder(name) / "certs" / "broker.key").unlink(missing_ok=True)  # no longer the certificate's
        else:
            signed = authority.sign(name, request.key)
        self._put(name, signed)
        return signed

    def _is_broker(self, name: str) -> bool:
        return name == BROKER or name in self.bridges

    def _sign_broker(self, name: str, key: CertificatePublicKeyTypes, authority: Authority) -> x509.Certificate:
        urls = self.bridges[name].broker if name in self.bridges else self.broker
        return authority.sign_server(name, key, *_hosts(urls), bridge=name in self.bridges)

    def _put(self, name: str, signed: x509.Certificate) -> None:
        """Makes a certificate the newest of a name, on the disk."""
        role: Role = "bridge" if name in self.bridges else ROLES.get(name, "device")
        identity = self.identities.setdefault(name, Identity(name=name, role=role))
        identity.state = "enrolled"
        issued = Issued(
            serial=f"{signed.serial_number:x}",
            fingerprint=fingerprint(signed.public_key()),
            begins=signed.not_valid_before_utc,
            ends=signed.not_valid_after_utc,
        )
        identity.certificates = [*identity.certificates, issued]
        pem = signed.public_bytes(Encoding.PEM)
        write_file(self.path / f"{name}.crt", pem)
        if self._is_broker(name):
            write_file(self.folder(name) / "certs" / "broker.crt", pem)
        self._save()

    def _save(self) -> None:
        write_file(self.path / "identities.json", msgspec.json.format(msgspec.json.encode(self.identities), indent=1))

    def write_list(self, authority: Authority) -> None:
        """The list of revoked certificates, good for ten years from now."""
        issued = [one for identity in self.identities.values() for one in identity.certificates]
        content = authority.revoked((int(one.serial, 16), one.revoked) for one in issued if one.revoked is not None)
        for name in (BROKER, *self.bridges):
            write_file(self.folder(name) / CRL, content)
            _give_away(self.folder(name))
        if self.trust:
            for folder in (self.path, *self._boxes()):
                write_file(folder / CRL, content)

    # --- for the machines ---

    def box(self, name: str) -> Path:
        """The folder of what a member's box needs; it may not be there."""
        return self.path / name

    def _boxes(self) -> list[Path]:
        """Those that are there."""
        return [box for name in self.members() if (box := self.box(name)).is_dir()]

    def hand_over(self, name: str, folder: Path) -> None:
        """Copies a name's certificate and the authority's to where its key is."""
        shutil.copyfile(self.path / f"{name}.crt", folder / f"{name}.crt")
        self.give_authority(folder)

    def give_authority(self, folder: Path) -> None:
        """Copies what an end knows the others by: the authority's certificate; if it trusts no broker, its list too."""
        for file in ("ca.crt", CRL) if self.trust else ("ca.crt",):
            shutil.copyfile(self.path / file, folder / file)

    def write_coordinator(self, certs: Path | None = None) -> None:
        """coordinator.yaml and watch.yaml. `certs`: the folder of their keys [certs beside the file]."""
        folder = Path("certs") if certs is None else certs.resolve()
        for name in (COORDINATOR, WATCH):
            text = (deploy.FOLDER / f"{name}.yaml").read_text()
            text = re.sub("^fleet: .*$", f"fleet: {self.fleet}", text, flags=re.M)
            text = re.sub("^broker: .*$", f"broker: {_written(self.broker)}", text, flags=re.M)
            if self.trust:
                text = re.sub("^# trust: .*$", f"trust: {{ca: certs/ca.crt, crl: certs/{CRL}}}", text, flags=re.M)
            text = re.sub(r"\bcerts/", f"{folder}/", text)
            if patience := self._patience_s:
                text = re.sub("^silent_s: .*$", f"silent_s: {patience}", text, flags=re.M)
            if name == WATCH and self.kind == "rabbitmq":  # which is asked for each by name
                text += "members: []\n"
            text = re.sub("^members: .*$", f"members: [{', '.join(self.members())}]", text, flags=re.M)
            write_file(self.path / f"{name}.yaml", text.encode())

    @property
    def _patience_s(self) -> int:
        """How long members may be silent by no fault, s: while a cluster elects nobody is heard. 0: no longer."""
        return max(SITES_SILENT_S * self.of_sites, CLUSTER_SILENT_S * (len(split(self.broker)) > 1))

    def write_site(self, above: FleetDirectory, certs: Path | None = None) -> None:
        """coordinator.yaml of a site: a member of the fleet `above`, which believes the other sites by their
        certificates of now. `certs`: as `write_coordinator`.
        """
        folder, site = Path("certs") if certs is None else certs.resolve(), self.site
        here = self.path if certs is None else folder
        shutil.copyfile(above.path / "ca.crt", here / ABOVE)
        if above.trust:
            shutil.copyfile(above.path / CRL, here / f"above-{CRL}")
        peers = [above.pinned(name) for name in above.members()]
        scenario = self.scenario()
        case, ignore = scenario.kind.source(scenario.problem), ", ".join(getattr(scenario.problem, "ignore", ()))
        lines = [
            f"# The coordinator of {site}. {site}.crt and {ABOVE} are of the fleet {above.fleet}.",
            f"fleet: {self.fleet}",
            f"broker: {_written(self.broker)}",
            f"tls: {{ca: {folder}/ca.crt, cert: {folder}/{COORDINATOR}.crt, key: {folder}/{COORDINATOR}.key}}",
            "state: /var/lib/hushgrid/coordinator",
            *([f"trust: {{ca: {folder}/ca.crt, crl: {folder}/{CRL}}}"] if self.trust else []),
            "above:",
            f"  site: {site}",
            f"  fleet: {above.fleet}",
            f"  broker: {_written(above.broker)}",
            f"  tls: {{ca: {folder}/{ABOVE}, cert: {folder}/{site}.crt, key: {folder}/{site}.key}}",
            f"  case: {case}" if case else f"  peers: [{', '.join(peers)}]",
            *([f"  ignore: [{ignore}]"] if ignore else []),
            *([f"  trust: {{ca: {folder}/{ABOVE}, crl: {folder}/above-{CRL}}}"] if above.trust else []),
        ]
        write_file(self.path / f"{COORDINATOR}.yaml", "".join(f"{line}\n" for line in lines).encode())

    def take(self, scenario: str) -> None:
        """Another scenario: its file, the coordinator's members, the broker's lists."""
        write_file(self.scenario_file, scenario.encode())
        nodes = self.members()
        for file in (self.path / "coordinator.yaml", self.path / "watch.yaml"):
            if file.exists():
                text = re.sub("^members: .*$", f"members: [{', '.join(nodes)}]", file.read_text(), flags=re.M)
                write_file(file, text.encode())
        self.write_broker()

    def access(self) -> Access:
        """What everybody who is not put out may publish and read. Raises InputError if the scenario is wrong."""
        out = [name for name, identity in self.identities.items() if identity.state == "revoked"]
        standby = STANDBY in self.identities
        scenario, file = self.scenario(), str(self.scenario_file)
        return access_of(self.fleet, scenario, file, out, site=self.site, standby=standby)

    # --- its brokers ---

    def folder(self, name: str) -> Path:
        """What the broker reads that has this identity."""
        return (self.path / ("broker" if name == BROKER else f"broker-{name}")).resolve()

    def broker_of(self, name: str) -> str:
        """Where an identity connects: at its site's broker, or the fleet's."""
        return next((bridge.broker for bridge in self.bridges.values() if name in bridge.members), self.broker)

    def brokers(self) -> dict[str, Broker]:
        """Each by its identity, the fleet's first. Raises InputError if the scenario is wrong."""
        access, urls = self.access(), parse_urls(self.broker)
        above = upper(access, self.bridges, [name for name in self.bridges if self.is_out(name)])
        brokers = {BROKER: Broker(self.folder(BROKER), self.broker, above)}
        for name, bridge in self.bridges.items():
            crosses = above.by_name.get(name)
            more = connection(crosses, urls[0], self.folder(name)) if crosses else ""
            brokers[name] = Broker(self.folder(name), bridge.broker, lower(access, bridge.members), more)
        return brokers

    def use(self, kind: BrokerKind) -> None:
        """The fleet's broker is of this kind from now on. `write_broker` writes its files."""
        if self.bridges and kind != BRIDGED:
            raise InputError(f"--for: found {kind}, expected {BRIDGED}: the brokers of {', '.join(self.bridges)}")
        text = (self.path / "fleet.yaml").read_text()
        write_file(self.path / "fleet.yaml", re.sub("^kind: .*$", f"kind: {kind}", text, flags=re.M).encode())
        self.kind = kind

    def write_broker(self) -> None:
        """broker/ and those of sites, from the scenario and who is enrolled: configuration and access list. Their
        certificates, keys and lists of revoked are written where they change. Raises InputError if the scenario is
        wrong.
        """
        for broker in self.brokers().values():
            shutil.copyfile(self.path / "ca.crt", broker.folder / "certs" / "ca.crt")
            files = broker_files(self.kind, broker.access, broker.folder, parse_urls(broker.urls))
            for name, text in files.items():
                more = broker.more if name == "mosquitto.conf" else ""
                write_file(broker.folder / name, (text + more).encode())
            _give_away(broker.folder)


def _give_away(folder: Path) -> None:
    """What the broker reads is its user's, if that is on this machine: it gives root's rights up, and reads lists
    again.
    """
    if (who := owner(folder)) is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *who, follow_symlinks=False)


def _check_bridges(file: FleetFile, nodes: list[str]) -> None:
    if file.bridges and file.kind != BRIDGED:
        raise InputError(f"--bridge: found --broker-kind {file.kind}, expected {BRIDGED}")
    check_bridges(file.bridges, nodes, ROLES)


def _identities(file: Path) -> dict[str, Identity]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Identity])
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected the fleet's identities") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{file}: {error}, expected the fleet's identities") from None


def _written(broker: str) -> str:
    """The value of `broker:` in a file."""
    urls = split(broker)
    return urls[0] if len(urls) == 1 else f"[{', '.join(urls)}]"


def _hosts(broker: str) -> list[str]:
    addresses = parse_urls(broker)
    if not addresses[0].tls:
        raise InputError(f"--broker: found {broker}, expected mqtts://host:port: certificates need TLS")
    return [address.host for address in addresses]


def _copy_scenario(file: Path, directory: Path) -> None:
    """The scenario, and the files that it names below its own folder."""
    shutil.copyfile(file, directory / "scenario.yaml")
    for text in _texts(read_yaml(file)):
        source = file.parent / text
        if Path(text).is_absolute() or not source.is_file() or "\0" in text:
            continue
        target = directory / text
        if ".." in Path(text).parts:
            raise InputError(f"{file}: found {text}, expected a file below the scenario's folder, or an absolute path")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _texts(value: object) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
