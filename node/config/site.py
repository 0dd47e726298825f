"""The `source` and `sink` of a device's file: what contradicts itself, and whether the files are as they must be."""

from __future__ import annotations

import grp
import os
from pathlib import Path

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.files import near_tls
from hushgrid.node.schema.site import LoadPaths, Sink, Source
from hushgrid.node.transport.connect import parse_urls, tls_context

KINDS = ("file", "folder", "command", "mqtt")


def near_source(source: Source | None, path: Path) -> Source | None:
    """The section with its paths, which are relative to the file at `path`, made absolute."""
    if source is None:
        return None
    paths = {
        key: str((path.parent / relative).resolve()) for key in ("file", "folder") if (relative := getattr(source, key))
    }
    mqtt = source.mqtt and replace(source.mqtt, tls=near_tls(source.mqtt.tls, path))
    return replace(source, mqtt=mqtt, **paths)


def near_sink(sink: Sink | None, path: Path) -> Sink | None:
    if sink is None:
        return None
    file = sink.file and replace(sink.file, path=str((path.parent / sink.file.path).resolve()))
    mqtt = sink.mqtt and replace(sink.mqtt, tls=near_tls(sink.mqtt.tls, path))
    return replace(sink, file=file, mqtt=mqtt)


def check_site(source: Source | None, sink: Sink | None, records: bool, path: Path) -> None:
    """Raises InputError unless the sections are complete and fit the kind of data. Nothing is opened."""
    if source is not None:
        _check_source(source, records, path)
    if sink is not None:
        if not (sink.file or sink.mqtt or sink.exec):
            raise InputError(f"{path}: sink: found an empty section, expected file, mqtt or exec")
        if sink.mqtt and ("{" in sink.mqtt.topic or sink.mqtt.topic.startswith("$")):
            raise InputError(f"{path}: sink.mqtt.topic: found {sink.mqtt.topic!r}, expected a topic of one document")
        if sink.mqtt and sink.mqtt.discovery and records:
            raise InputError(f"{path}: sink.mqtt.discovery: found home-assistant, expected none (a device with rows)")


def _check_source(source: Source, records: bool, path: Path) -> None:
    kinds = [key for key in KINDS if getattr(source, key)]
    if len(kinds) != 1:
        raise InputError(f"{path}: source: found {' and '.join(kinds) or 'none'}, expected one of {', '.join(KINDS)}")
    if source.rule and (records or source.mqtt):
        expected = "none (a device with rows)" if records else "file, folder or command (a message has no time)"
        raise InputError(f"{path}: source.rule: found {source.rule}, expected {expected}")
    if source.begins and not source.rule:
        raise InputError(f"{path}: source.begins: found {source.begins}, expected none (no source.rule)")
    bounds = source.bounds
    for key in ("p_mw", "q_mvar", "features"):
        ends = getattr(bounds, key) if bounds else None
        if ends is None:
            continue
        if (key == "features") != records:
            raise InputError(f"{path}: source.bounds.{key}: found bounds, expected none of this kind of data")
        if not ends[0] <= ends[1]:
            raise InputError(f"{path}: source.bounds.{key}: found {list(ends)}, expected [low, high]")
    if source.mqtt is None:
        return
    topic, key = source.mqtt.topic, f"{path}: source.mqtt"
    if any(sign in topic.replace("{bus}", "").replace("{quantity}", "") for sign in "{}"):
        raise InputError(f"{key}.topic: found {topic!r}, expected no braces but {{bus}} and {{quantity}}")
    if ("{bus}" in topic and records) or ("{quantity}" in topic and "{bus}" not in topic):
        raise InputError(
            f"{key}.topic: found {topic!r}, expected one topic (a device with rows), or {{quantity}} beside {{bus}}"
        )
    if isinstance(source.mqtt.path, LoadPaths) and ("{bus}" not in topic or "{quantity}" in topic):
        raise InputError(f"{key}.path: found {{p_mw, q_mvar}}, expected one path (a topic with {{bus}} alone has two)")


def ready_words(source: Source | None, sink: Sink | None, path: Path) -> list[str]:
    """What the owner should know of the files and programs that the sections name, in lines; no value is read.

    Raises InputError if one is not there, or may not be opened by whoever asks.
    """
    lines = []
    if source is not None:
        for key, mode in (("file", os.R_OK), ("folder", os.R_OK | os.X_OK)):
            if (name := getattr(source, key)) and not os.access(name, mode):
                why = "Permission denied" if os.path.exists(name) else "No such file or directory"
                raise InputError(f"{path}: source.{key}: {name}: {why}, expected it to be readable here")
        if source.command:
            _program(source.command[0], path, "source.command")
        if source.mqtt:
            tls_context(parse_urls(source.mqtt.broker)[0], source.mqtt.tls)
        instead = "leaves the last good value"
        if source.rule:
            instead = f"counts as the public load of its period, with the weight of a reading (rule {source.rule})"
        lines.append(
            f"source: {source.description}, read within {source.deadline:g} s before each run; what is late, missing "
            f"or none {instead}, and the run costs the same"
        )
    if sink is not None:
        lines += _sink_words(sink, path)
    return lines


def _sink_words(sink: Sink, path: Path) -> list[str]:
    parts = []
    if sink.file:
        folder = os.path.dirname(sink.file.path)
        if not os.access(folder, os.W_OK | os.X_OK):
            why = "Permission denied" if os.path.isdir(folder) else "No such directory"
            raise InputError(f"{path}: sink.file.path: {folder}: {why}, expected a folder to write in")
        parts.append(
            f"{sink.file.path} (mode {sink.file.mode}{', group ' + sink.file.group if sink.file.group else ''})"
        )
        if sink.file.group:
            group_of(sink.file.group, f"{path}: sink.file.group")
    if sink.mqtt:
        tls_context(parse_urls(sink.mqtt.broker)[0], sink.mqtt.tls)
        parts.append(f"{sink.mqtt.topic} on {sink.mqtt.broker}")
    if sink.exec:
        _program(sink.exec[0], path, "sink.exec")
        parts.append(sink.exec[0])
    return [f"sink: the outcome of each run goes to {', '.join(parts)}; it is post-processing and costs nothing"]


def group_of(name: str, place: str) -> int:
    """The number of a group. Raises InputError if there is none of this name."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise InputError(f"{place}: found {name!r}, expected a group of this machine") from None


def _program(word: str, path: Path, key: str) -> None:
    places = [path.parent] if "/" in word else [Path(p) for p in os.get_exec_path()]
    if not any(os.access(place / word, os.X_OK) and not os.path.isdir(place / word) for place in places):
        raise InputError(f"{path}: {key}: found {word!r}, expected a program that may be run here")
