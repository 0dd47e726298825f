"""How a device gets its data: from the file that its owner replaces, or from a source that other programs write.

Whether the data are new is never decided by what they are. A file that takes another's place is another data version,
and one that stands still is none, whatever a coordinator says. Of a folder, a program or topics each run is one:
values come and change as they like, and the device takes the last good ones when a run begins. A value that is late,
missing or none is told to the owner alone. With `retention` no reading counts longer than that after it was read first,
and a public one stands in for it then (docs/gate.md, windows).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError, Refused, Stopped
from hushgrid.node import system
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.durable import stamp
from hushgrid.node.log import Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.feed import Readings, complete, reading_days
from hushgrid.node.problems.kind import Device
from hushgrid.node.schema.durations import date, in_words, seconds
from hushgrid.node.schema.site import Source
from hushgrid.node.site.forked import hold
from hushgrid.node.site.intake_log import IntakeLog
from hushgrid.node.site.sources import Reader, Reading
from hushgrid.node.site.subscriber import Subscriber
from hushgrid.node.site.value_store import ValueStore, last_values, running, values_file

Say = Callable[[str], None]
Agree = Callable[[int], None]
Fits = Callable[[Device], None]


class DataSource(ABC):
    """The device with the data that a run is to have. `reason`: why its values are not of now; "" if they are."""

    config: DeviceConfig
    path: str  #: of the owner's file
    ledger: Ledger
    log: Say
    device: Device  #: with the data of the ledger's data version
    reason: str = ""
    subscriber: Subscriber | None = None  #: what hears the source's topics, if it has any

    @abstractmethod
    def __call__(
        self, affordable: bool = True, agree: Agree = lambda version: None, fits: Fits = lambda device: None
    ) -> Device:
        """The device with the data of a new run.

        `affordable`: whether the window of its budget has room for an answer about new data.
        `agree` is told the data version that the run would have, before anything is renewed; if it raises, nothing is.
        `fits` raises InputError or Refused about a device that the run is not for: then its data are not taken either.
        """

    def fitting(self, fits: Fits) -> Device:
        """The device of now, if the run is for it. Nothing is renewed. Raises what `fits` raises."""
        fits(self.device)
        return self.device

    @property
    @abstractmethod
    def age(self) -> float | None:
        """Seconds of running time since the data were good; None if that is not known."""

    @property
    def data_state(self) -> str:
        """Of the data that an answer of now is about: `current`, `last-good` (nothing of now could be read),
        `expired`.
        """
        return "last-good" if self.reason else "current"

    @abstractmethod
    def look(self) -> None:
        """Its owner asks it to look at the data."""

    @abstractmethod
    def declared(self, config: DeviceConfig) -> DataSource:
        """The data source by the owner's file of now: this one, or one that takes its place.
        It takes no value of a source.

        Raises InputError if the file is wrong; nothing has changed then.
        """

    def followed_by(self, data_source: DataSource) -> DataSource:
        """Another takes its place, whose data are from elsewhere."""
        self.close()
        self.log(f"the data come from elsewhere from now on: data version {self.ledger.data_version}")
        return data_source

    def close(self) -> None:
        """It hears nothing any more."""
        if self.subscriber:
            self.subscriber.link.close()


def data_source_of(config: DeviceConfig, path: str, ledger: Ledger, log: Say) -> DataSource:
    """The data source of a device with its data read. Raises InputError if they are wrong,
    Stopped if there are none yet.
    """
    if config.source is None:
        return FileDataSource(config, path, ledger, log)
    return LiveDataSource(config, config.source, path, ledger, log)


def _declared(config: DeviceConfig) -> tuple[object, ...]:
    """What an owner's file says of the data themselves."""
    return config.data, config.labels, config.problem


def _meant(config: DeviceConfig) -> tuple[object, ...]:
    """What it says of them besides: the unit of a change, and which loads there may be."""
    return config.budget.adjacency, config.allow.loads


def _public(device: Device) -> str:
    """A digest of what is public of the data: of another case, zone, mask,
    or number of features they are other data.
    """
    return hashlib.sha256(f"{device.kind} {device.public_part}".encode()).hexdigest()


def _expect_same(before: Device, now: Device, path: str) -> None:
    """Raises InputError if the public part of a device is another."""
    for what in ("kind", "neighbours", "digest", "dimension"):
        if getattr(now, what) != getattr(before, what):
            raise InputError(f"{path}: data: found another {what}, expected the one at the start")


def device_of(config: DeviceConfig, path: str) -> Device:
    """The device as a command sees it, beside one that may be running: with the last values that it has taken.

    Without any it has those that its file names, or none. Raises InputError if its file is wrong.
    """
    if config.source is None:
        return config.kind.device(config, path)
    feed = config.kind.feed(config, path)
    stored = last_values(values_file(config.state, config.node))
    values = (stored and stored.good) or feed.declared
    device: Device = feed.device(values) if values else feed.public
    return device


class FileDataSource(DataSource):
    """The data as their file holds them; a file that is another one is a new data version.

    Whether it is another is judged by inode, size and time, never by what it holds:
    that would tell whether two data sets are equal. The version is raised in the ledger before the new data are used.
    """

    def __init__(self, config: DeviceConfig, path: str, ledger: Ledger, log: Say, before: Device | None = None) -> None:
        """Reads the data. `before`: the device as a source had it until now. Raises InputError if they are wrong."""
        self.config, self.path, self.ledger, self.log = config, path, ledger, log
        self.file = config.file
        self._latest: tuple[DeviceConfig, Device, str] | None = None  # what was read last, taken or not
        self.device, self._stamp = self._read()
        if before is not None:
            _expect_same(before, self.device, path)
        of_source = ValueStore(values_file(config.state, config.node), ledger).current  # the data version of until now
        replaced = ledger.saw_data(self._stamp)
        if not ledger.saw_public(_public(self.device), known=replaced) and not replaced and of_source:
            ledger.new_data()

    def __call__(
        self, affordable: bool = True, agree: Agree = lambda version: None, fits: Fits = lambda device: None
    ) -> Device:
        agree(self.ledger.data_version + self._replaced())
        self.look(fits)
        return self.device

    def fitting(self, fits: Fits) -> Device:
        """The device of now, or the one that the file makes that has taken its place, if the run is for that one alone:
        what was read first may have been half written.
        """
        try:
            return super().fitting(fits)
        except (InputError, Refused):
            with suppress(InputError, Refused):
                if self._replaced():
                    device, _ = self._read()
                    fits(device)
                    return device
            raise

    def _replaced(self) -> bool:
        try:
            return self._seen() != self._stamp
        except InputError:
            return False

    @property
    def age(self) -> float | None:
        return None

    def look(self, fits: Fits = lambda device: None) -> None:
        """Takes the data of now; keeps those of before where the file cannot be read. Raises what `fits` raises about
        them: its owner has put them there, so no run has those of before in their place.
        """
        try:
            taken = self._read() if self._seen() != self._stamp else None
            self.reason = ""
        except InputError as error:
            self.reason = str(error)
            self.log(Warned(f"the data stay as they were: {error}"))
            return
        if taken is not None:
            device, stamp = taken
            fits(device)
            self.ledger.saw_data(stamp)
            self.device, self._stamp = device, stamp
            self.log(f"{self.file} was replaced: data version {self.ledger.data_version}")

    def declared(self, config: DeviceConfig) -> DataSource:
        """Other sections about the data make them new; another unit, or another mask of loads, does not."""
        if config.source is not None:
            return self.followed_by(
                LiveDataSource(config, config.source, self.path, self.ledger, self.log, self.device)
            )
        before, self.config, self.file = (self.config, self.file), config, config.file
        new = _declared(config) != _declared(before[0])
        if new or _meant(config) != _meant(before[0]):
            try:
                device, stamp = self._read()
                _expect_same(self.device, device, self.path)
            except InputError:
                self.config, self.file = before
                raise
            if not self.ledger.saw_data(stamp) and new:
                self.ledger.new_data()
            self.ledger.saw_public(_public(device), known=True)
            self.device, self._stamp = device, stamp
        if new:
            self.log(f"the data are declared anew: data version {self.ledger.data_version}")
        return self

    def _read(self) -> tuple[Device, str]:
        """Data and stamp of one and the same file, even where it is being replaced meanwhile. A file is read once,
        however many plans are refused: else they could time it.
        """
        while True:
            before = self._seen()
            if self._latest is not None and self._latest[0] is self.config and self._latest[2] == before:
                return self._latest[1:]
            device = self.config.kind.device(self.config, self.path)
            if self._seen() == before:
                self._latest = self.config, device, before

    def _seen(self) -> str:
        try:
            return stamp(self.file)
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror}, expected this device's data") from None


class LiveDataSource(DataSource):
    """The data as a source gives them. Reading always takes the same time, so that it tells nothing of what is read."""

    def __init__(
        self,
        config: DeviceConfig,
        source: Source,
        path: str,
        ledger: Ledger,
        log: Say,
        before: Device | None = None,
    ) -> None:
        """Takes the values of the ledger's data version, or reads them and raises it.

        `before`: the device as its file or another source had it until now; then nothing is read before the next run.
        Raises InputError if the device's file is wrong, Stopped if there never was a good value: it may come.
        """
        self.config, self.source, self.path, self.ledger, self.log = config, source, path, ledger, log
        self.feed = config.kind.feed(config, path)
        if before is not None:
            _expect_same(before, self.feed.public, path)
            self.feed.values_of(before)
        digest = _public(self.feed.public)
        another = before is None and ledger.public not in (None, digest)  # other data: a version is to rise
        self.store = ValueStore(values_file(config.state, config.node), ledger)
        self.noted = IntakeLog(config, ledger.id, self.feed.rows)
        self._reader = Reader(source, self.feed, Path(path).resolve().parent)
        #: whether the next run has another version, though the source's file be the same
        self._anew = before is not None
        last, now = self.store.fitting(self.feed), running(ledger)
        stands = last is not None and self.store.current and not another
        #: whether what a source gives at first may have been read before: which files were, is lost,
        #: and answers were given
        self._lost = last is None and before is None and config.expiring and ledger.spends.answers() > 0
        self.readings = self._first(before, now, last) if last is None or (before and not stands) else last
        if self._lost and self.readings is not None:
            log(Warned("what was read before is not known: what the source holds counts as old until it is replaced"))
            self.readings = self.readings._replace(until=np.minimum(self.readings.until, now))
        if source.mqtt:
            self.subscriber = Subscriber(
                source.mqtt, self.feed, f"{config.fleet}-{config.node}", log, lambda: running(ledger)
            )
        if stands and self.readings is not None:
            self._hold(self.readings, now)
        elif before is not None and self.readings is not None:
            self._rise(self.readings, now)
            self._anew = True
        else:
            self._begin()
        ledger.saw_public(digest, known=True)

    def _first(self, before: Device | None, now: float, last: Readings | None) -> Readings | None:
        """What counts until there is a good value. A file's own data stood still, nobody knows how long,
        and expire at once.
        """
        if before is None:
            return self.feed.first(now)
        values = self.feed.values_of(before)
        size = len(next(reversed(values.values())))
        read = np.full(size, -np.inf if self.config.expiring else now)
        return Readings(values, read, np.full(size, np.inf), self.feed.rows + (last.number if last else 0))

    def _begin(self) -> None:
        """Reads the first values. Raises Stopped if there are none yet."""
        until, last = system.machine.monotonic() + self.source.deadline, self.readings
        if self.subscriber:
            self.subscriber.wait()
        now = running(self.ledger)
        reading = self._read(tell=last is not None)
        readings = self._merged(reading, now)
        hold(until)
        if readings is None or not complete(readings.values):
            if self.subscriber:
                self.subscriber.link.close()
            raise Stopped(f"{self.config.node}: source: no value yet: {self.reason}")
        self._rise(readings, now, reading)

    def __call__(
        self, affordable: bool = True, agree: Agree = lambda version: None, fits: Fits = lambda device: None
    ) -> Device:
        until = system.machine.monotonic() + self.source.deadline
        stands, began = self.store.now, running(self.ledger)
        pause, version = self.config.pause, self.ledger.data_version
        if stands is not None and began - stands.risen < pause:
            agree(version)
            self.log(f"data version {stands.version} counts on, {in_words(began - stands.risen)} old (fresh)")
            return self.device  # as public as the schedule
        if pause and stands is not None and not affordable:  # and so is what the window holds
            agree(version)
            self._because("the window of its budget has no room for a fresh answer yet")
            return self.device
        reading = self._read()
        readings = self._merged(reading, began)
        hold(until)  # from here on nothing takes longer for one value than for another
        rises = readings is not None and self._replaced(reading, readings)
        agree(version + rises)
        if rises and readings is not None:
            self._rise(readings, began, reading)
        return self.device

    @property
    def age(self) -> float | None:
        now = self.store.now
        return None if now is None else max(0.0, running(self.ledger) - now.read)

    @property
    def data_state(self) -> str:
        limit, age = self.source.max_age, self.age
        return "expired" if limit and age is not None and age > seconds(limit) else super().data_state

    def look(self) -> None:
        """Nothing: values are taken when a run begins, and at no other time."""

    def declared(self, config: DeviceConfig) -> DataSource:
        """By another section a source is read from the next run on."""
        if config.source is None:
            return self.followed_by(FileDataSource(config, self.path, self.ledger, self.log, self.device))
        was = self.source, _declared(self.config), _meant(self.config)
        if (config.source, _declared(config), _meant(config)) != was:
            return self.followed_by(
                LiveDataSource(config, config.source, self.path, self.ledger, self.log, self.device)
            )
        if (config.retention, config.budget) != (self.config.retention, self.config.budget):
            self.config = config
            self.noted.claim(config)
            assert self.readings is not None
            self._hold(self.readings, running(self.ledger))
        self.config = config
        return self

    def _replaced(self, reading: Reading | None, readings: Readings) -> bool:
        """Whether a file is another one, be it a value or none. Of other sources each run is a data version; of a rule
        each day, by the clock.
        """
        stands = self.store.now
        if self.feed.days and not self._anew:
            return stands is None or stands.days != reading_days(self.feed, readings.values)
        if self.source.file is None or self._anew:
            return True
        return reading is not None and reading.stamp != "" and (stands is None or reading.stamp != stands.stamp)

    def _read(self, *, tell: bool = True) -> Reading | None:
        """What the source gives now; None, and a reason, if that is no value. `tell`: the owner of it, in the log."""
        try:
            if stands := self.store.now:
                self._reader.known, self._reader.forgotten = stands.files, stands.forgotten
            reading = self.subscriber.reading() if self.subscriber else self._reader()
        except InputError as error:
            self._because(str(error), tell)
            return None
        old = self.source.max_age is not None and reading.age > seconds(self.source.max_age)
        late = f"its value is older than {self.source.max_age}" if old else ""
        self._because(self._clock_back(reading) or reading.left_out or late, tell)
        return reading

    def _clock_back(self, reading: Reading) -> str:
        """That the clock stands before a day that was read, in words; "" if it does not."""
        if not self.feed.days or self.readings is None or reading.values is None:
            return ""
        day, last = (int(values["day"][0]) for values in (reading.values, self.readings.values))
        if day >= last:
            return ""
        return (
            f"found today to be {date(day + 1)}, expected at least {date(last + 1)}, as it was: the answer of then is "
            f"repeated (if that day was wrong, stop the device and remove {self.store.path})"
        )

    def _because(self, reason: str, tell: bool = True) -> None:
        """Tells the owner, once, why the values are not of now."""
        if tell and reason and reason != self.reason:
            self.log(Warned(f"the source gives no value of now, and the last good one counts: {reason}"))
        elif self.reason and not reason:
            self.log("the source gives values again")
        self.reason = reason

    def _merged(self, reading: Reading | None, now: float) -> Readings | None:
        """What counts once this was read, at running time `now`: each value keeps the time at which it was read
        first.
        """
        before, values = self.readings, reading.values if reading else None
        if self.feed.days and values is None:  # a day has passed all the same
            return self.feed.merged(before, self.feed.nothing, np.full(1, now), np.full(1, np.inf))
        if reading is None or values is None:
            return before
        read = np.full(1, now) if reading.read is None else reading.read
        if not self.feed.rows and reading.files:
            first = next(iter(reading.files.values())).read
            read = np.full(1, now if first is None else first)
        until = np.full(1, now if self._lost and not self.source.command else np.inf)
        return self.feed.merged(before, values, read, until)

    def _rise(self, readings: Readings, now: float, reading: Reading | None = None) -> None:
        """A new data version, with new values or with the last good ones: whether they are new is nobody's business."""
        stands, self._anew, self._lost = self.store.now, False, False
        good = now - reading.age if reading and reading.values is not None else stands.read if stands else now
        timed = self._noted(readings, now)
        if reading and reading.files:
            files = {k: replace(f, read=now) if f.read is None else f for k, f in reading.files.items()}
            reading = reading._replace(files=files)
        self.store.rise(timed, good, reading, reading_days(self.feed, timed.values))
        self._take(timed)

    def _hold(self, readings: Readings, now: float) -> None:
        """The values of the version that stands, with no time in the future: after a crash running time is late."""
        timed = self._noted(readings, now)
        self.store.settle(timed, now)
        self._take(timed)

    def _take(self, readings: Readings) -> None:
        self._tell_days(readings)
        self.readings = readings
        self.device = self.feed.device(readings.values, readings.until if self.config.expiring else None)
        if self.subscriber:
            self.subscriber.taken(readings.read)

    def _tell_days(self, readings: Readings) -> None:
        """Tells the owner, once a data version, of how many days there are readings."""
        if (days := reading_days(self.feed, readings.values)) is None:
            return
        known = int(np.isfinite(readings.read.reshape(days.n, -1)).any(axis=1).sum())
        if known < days.n:
            self.log(f"readings of {known} of the {days.n} days to {date(days.last)}: of others public loads count")

    def _noted(self, readings: Readings, now: float) -> Readings:
        """The readings within their retention. Those that were not timed with these times stand in the owner's log."""
        timed = readings.within(now, seconds(self.config.retention) if self.config.retention is not None else None)
        before, size = self.store.fitting(self.feed), timed.read.size
        new = ~np.isnan(timed.read) & (timed.until >= now)
        if before is not None:
            moved = min(max(timed.number - before.number, 0), size)  # so many rows have gone
            pairs = ((timed.read, before.read), (timed.until, before.until))
            same = [now_ == np.concatenate([was[moved:], np.full(moved, np.nan)]) for now_, was in pairs]
            new &= ~(same[0] & same[1])
        if self.feed.days:
            new[:] = False  # of which days they are is noted in the ledger
        self.noted.add(now, timed, new, self.feed.names)
        return timed
