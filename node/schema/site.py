"""The sections of a device file about other programs on its site: where its data come from, where its outcome goes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hushgrid.node.schema.durations import UNITS, Duration
from hushgrid.node.schema.sections import Section, Tls

Word = Annotated[str, Meta(min_length=1, max_length=4096)]
Topic = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^+#\x00]*\Z")]
#: Keys and places from the outside in, with dots between them, as in power.active or values.0
Path = Annotated[str, Meta(min_length=1, max_length=256)]
Pair = tuple[float, float]
RULES = {"week-mean": 7, "yesterday": 1}  #: by name: of how many days, hour by hour, a forecast is the mean


class LoadPaths(Section, frozen=True, kw_only=True):
    """Where in a bus's document its load stands."""

    p_mw: Path  #: of the active load, MW
    q_mvar: Path  #: of the reactive load, MVAr


class MqttSource(Section, frozen=True, kw_only=True):
    """A topic of a second, local broker: the one of the site, never the fleet's."""

    broker: str  #: mqtt://host:port or mqtts://host:port
    #: zones: of one document of all buses; with {bus} in it, of one document a bus; with {bus} and {quantity} (p_mw,
    #: q_mvar), of one number each. Rows: of messages with one row each
    topic: Topic
    #: where in a JSON document the value stands; zones with {bus}: also {p_mw: ..., q_mvar: ...} [the whole payload]
    path: Path | LoadPaths | None = None
    tls: Tls | None = None  #: required of mqtts


class Bounds(Section, frozen=True, kw_only=True):
    """A value outside is moved to the nearer end, and the run goes on."""

    p_mw: Pair | None = None  #: zones: [low, high] of each active load, MW
    q_mvar: Pair | None = None  #: zones: [low, high] of each reactive load, MVAr
    features: Pair | None = None  #: rows: [low, high] of each entry of A


class Source(Section, frozen=True, kw_only=True):
    """Where a device gets its data: exactly one of `file`, `folder`, `command` and `mqtt`."""

    file: Word | None = None  #: read before each run; replaced by its owner in one piece
    #: growing: of a zone the newest file counts, of rows all files, as many of their last rows as `data` has
    folder: Word | None = None
    #: a program and its words, without a shell, in the folder of this file: what it prints is read before each run
    command: Annotated[list[Word], Meta(min_length=1, max_length=64)] | None = None
    mqtt: MqttSource | None = None  #: topics of a second, local broker
    #: zones over a horizon: the source has readings of past days, rows of time (UTC), bus, p_mw, q_mvar. Answers are
    #: about a forecast that the device makes of them: their mean over the last 7 days, hour by hour, or the day before.
    #: A reading that is missing counts as that of `data.profiles`, which is public [the source has the loads]
    rule: Literal["week-mean", "yesterday"] | None = None
    #: when period 1 of a day begins, UTC [00:00]
    begins: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\Z", examples=["05:00"])] | None = None
    bounds: Bounds | None = None  #: public limits of its values [none]
    max_age: Duration | None = None  #: older values are said in the device's own log and sink; they count all the same
    #: s that reading takes, always: what is not there by then counts as missing [file, folder .5, command 5, mqtt .1]
    within: Annotated[float, Meta(ge=0.05, le=20)] | None = None

    @property
    def day_begins(self) -> float:
        """When a day begins, s after midnight, UTC."""
        hours, minutes = (self.begins or "00:00").split(":")
        return int(hours) * UNITS["h"] + int(minutes) * UNITS["min"]

    @property
    def deadline(self) -> float:
        """Seconds that reading takes, whatever is read."""
        if self.within is not None:
            return self.within
        return 5.0 if self.command else 0.1 if self.mqtt else 0.5

    @property
    def description(self) -> str:
        """What it is, for the owner."""
        if self.mqtt:
            return f"{self.mqtt.topic} on {self.mqtt.broker}"
        return self.file or self.folder or " ".join(self.command or ())


class SinkFile(Section, frozen=True, kw_only=True):
    """A file that is replaced in one piece after each run, and when what it says has become old."""

    path: Word  #: JSON; of rows an archive .npz of the model
    mode: Annotated[str, Meta(pattern=r"^0?[0-7]{3}\Z")] = "600"  #: its permissions, octal
    group: Annotated[str, Meta(min_length=1, max_length=64)] | None = None  #: its group, a name [the process's]


class MqttSink(Section, frozen=True, kw_only=True):
    """A retained topic of the local broker."""

    broker: str  #: mqtt://host:port or mqtts://host:port
    topic: Topic  #: of one JSON document
    discovery: Literal["home-assistant"] | None = None  #: describes the topic to Home Assistant [nobody]
    tls: Tls | None = None  #: required of mqtts


class Sink(Section, frozen=True, kw_only=True):
    """Who is told the outcome of a run, beside the state directory: any of these, one of each."""

    file: SinkFile | None = None  #: a file
    mqtt: MqttSink | None = None  #: a retained topic of a second, local broker
    #: a program and its words, without a shell: it gets the JSON document on its standard input
    exec: Annotated[list[Word], Meta(min_length=1, max_length=64)] | None = None
