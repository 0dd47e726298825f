"""The files that `trust:` names: who this end is, and whom its owner trusts, read again when they change."""

from __future__ import annotations

from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.node.masks.identity import Identity, Trust, authorities_in, lists_in
from hushgrid.node.schema.sections import Tls
from hushgrid.node.schema.trust import Trusted

Stamp = tuple[tuple[int, int, int], ...]


class Credentials:
    """Of the end `name`. Raises InputError if a file is wrong when the end starts."""

    def __init__(self, name: str, trusted: Trusted, tls: Tls | None) -> None:
        self.name, self.trusted = name, trusted
        cert, key = trusted.cert or (tls and tls.cert), trusted.key or (tls and tls.key)
        if not cert or not key:
            raise InputError(f"trust: found no certificate of {name}, expected trust.cert and trust.key, or tls.cert")
        self._own, self._section = (cert, key), "trust" if trusted.cert else "tls"
        self._named = [file for file in (trusted.ca, trusted.crl) if file]
        self._own_stamp, self._named_stamp = _stamp(self._own), _stamp(self._named)
        self._identity, self._trust = self._read_identity(), self._read_trust()

    @property
    def identity(self) -> Identity:
        """Its certificate and key as they are now; a pair that is being replaced counts when it is whole."""
        if (stamp := _stamp(self._own)) != self._own_stamp:
            try:
                self._identity, self._own_stamp = self._read_identity(), stamp
            except InputError:
                return self._identity
        return self._identity

    @property
    def trust(self) -> Trust:
        """Whom its owner trusts now. Raises InputError if a file is wrong: then it trusts nobody new."""
        if (stamp := _stamp(self._named)) != self._named_stamp:
            self._trust, self._named_stamp = self._read_trust(), stamp
        return self._trust

    def _read_identity(self) -> Identity:
        cert, key = self._own
        return Identity.read(self.name, cert, key, self._section)

    def _read_trust(self) -> Trust:
        if self.trusted.ca is None:
            return Trust(self.trusted.fingerprints or {})
        authorities = authorities_in(self.trusted.ca, "trust")
        lists = lists_in(self.trusted.crl, authorities, "trust") if self.trusted.crl else ()
        return Trust((), authorities, lists=lists)


def _stamp(files: list[str] | tuple[str, ...]) -> Stamp:
    """What another file of the same name would change."""
    stamps = []
    for file in files:
        try:
            stat = Path(file).stat()
        except OSError:
            stamps.append((0, 0, 0))
        else:
            stamps.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(stamps)
