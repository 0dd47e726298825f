"""What a kind of problem makes of the contents of a source: values, and a device that holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.ledger_rows import ReadingDays

Values = dict[str, NDArray[np.float64]]  #: a device's data, by name
Slot = tuple[str, ...]  #: which part of the values a topic carries; () is all of them
Times = NDArray[np.float64]  #: of a device's readings, s of the ledger's running time


class Part(NamedTuple):
    """What one file, printed text or message gives."""

    values: Values  #: of a zone nan where there is no number; of rows those that are whole, in their order
    places: NDArray[np.int64]  #: of rows (k,): at which place of the file each stands, from 1 on
    last: int = 0  #: of rows: the last place that has a row, whole or not
    wrong: str = ""  #: what of it is no value, the first of that; "" if all is


class Readings(NamedTuple):
    """What a device holds of its source. One reading is an entry of a zone's loads, or a row of records."""

    values: Values
    read: Times  #: (k,) when each was read first; nan: never, it is public
    until: Times  #: (k,) when each counts for the last time; infinite: for ever
    number: int = 0  #: of rows: how many were ever taken

    def within(self, now: float, retention: float | None) -> Readings:
        """None of them read after `now`, or counting for longer than `retention` (s; None: for ever)."""
        read = np.minimum(self.read, now)
        most = np.full(read.shape, np.inf) if retention is None else read + retention
        return self._replace(read=read, until=np.fmin(self.until, most))


class Feed(Protocol):
    """Of one device. Its methods raise InputError if contents are no values; the line says where, never what."""

    most: int  #: bytes that contents may have
    names: Sequence[str]  #: of a zone's entries; of rows none
    rows: int  #: that a device has at once; 0: it has entries
    days: int  #: of readings, of which a device's data are the mean (`values["day"]`: the last); 0: they are the values

    @property
    def nothing(self) -> Values:
        """Nothing that was read."""
        ...

    @property
    def declared(self) -> Values | None:
        """The values that the device's file names itself; None if it names none."""
        ...

    def first(self, now: float) -> Readings | None:
        """What counts until the source has given something, at running time `now`; None if the device's file names
        nothing.
        """
        ...

    def read(self, content: bytes, place: str) -> Part:
        """The values in a whole file, or in what a program has printed. `place`: its name in error lines."""
        ...

    def merged(self, before: Readings | None, values: Values, read: Times, until: Times) -> Readings:
        """What counts with these values too: of a zone the last of each entry, of rows as many of the last as there may
        be.

        `read`, `until`: of each of the values, or (1,) of all. `before` None: nothing was ever read.
        """
        ...

    def slots(self, topic: str) -> Mapping[str, Slot]:
        """The topics that a source's topic stands for, and what each of them carries."""
        ...

    def receive(self, slot: Slot, document: object, place: str) -> Part:
        """The values in one message."""
        ...

    @property
    def public(self) -> Any:
        """A device without values of the source, for what is said of its public part."""
        ...

    def device(self, values: Values, until: Times | None = None) -> Any:
        """The `kind.Device` that holds these values. `until`: of a reading each; later the public one counts. None: for
        ever.
        """
        ...

    def values_of(self, device: Any) -> Values:
        """The values that a device of the same kind holds. Raises InputError unless they are of the same form."""
        ...


def reading_days(feed: Feed, values: Values) -> ReadingDays | None:
    """The days of whose readings the data are the mean; None: they are the values themselves."""
    return ReadingDays(int(values["day"][0]), feed.days) if feed.days else None


def complete(values: Values | None) -> bool:
    """Whether every entry is there."""
    return values is not None and all(np.isfinite(v).all() for v in values.values())


def pack(values: Values) -> bytes:
    """Values as bytes; `unpack` is the way back."""
    return msgspec.msgpack.encode({k: (v.shape, np.ascontiguousarray(v).tobytes()) for k, v in values.items()})


def unpack(blob: bytes) -> Values:
    """Raises InputError if the bytes are no values."""
    try:
        fields = msgspec.msgpack.decode(blob, type=dict[str, tuple[tuple[int, ...], bytes]])
        return {k: np.frombuffer(data).reshape(shape).copy() for k, (shape, data) in fields.items()}
    except (msgspec.DecodeError, ValueError):
        raise InputError("found other bytes, expected values") from None


def document_of(text: bytes, place: str) -> object:
    """JSON as it stands in a message or a file. Raises InputError."""
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError):
        raise InputError(f"{place}: found no JSON, expected a number or a document") from None


def _constant(word: str) -> float:
    raise ValueError(word)


def value_at(document: object, path: str | None, place: str) -> object:
    """What stands in a document at a path, e.g. power.active or phases.0. Raises InputError if nothing does."""
    for key in path.split(".") if path else ():
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and key.isdecimal() and len(key) < 10 and int(key) < len(document):
            document = document[int(key)]
        else:
            raise InputError(f"{place}: found nothing at {path}, expected a value")
    return document


def number_of(entry: object, place: str) -> float:
    """A number, or a text that is one. Raises InputError; a number beyond all floats is infinite, as its text says."""
    if isinstance(entry, bool) or not isinstance(entry, int | float | str):
        raise InputError(f"{place}: found no number, expected one")
    try:
        value = float(entry)
    except OverflowError:
        return np.inf if isinstance(entry, int) and entry > 0 else -np.inf
    except ValueError:
        value = np.nan
    if np.isnan(value):
        raise InputError(f"{place}: found no number, expected one")
    return value
