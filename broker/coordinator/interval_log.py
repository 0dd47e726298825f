"""A line of each interval in a table that does not grow for ever, their counts, and the removal of old records."""

from __future__ import annotations

import csv
import io
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.types import Document
from hushgrid.node import system
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.status import NAMED, Interval

#: Of intervals.csv. Times are UTC, by the wall clock, which may be set; in s: the coordinator's running time, which may
#: not.
COLUMNS = (
    *("interval", "began", "ended", "outcome", "cause", "reason", "run", "start", "cold"),
    *("rounds", "residual", "quality", "held", "absent"),
    *("refused", "began_s", "ended_s", "period"),
)


def note(path: Path, row: dict[str, Any], most: int) -> None:
    """Adds an interval to the table at `path`, which keeps the last `most`, and now and then up to twice as many.

    An interval whose line is there already, because the process ended meanwhile, gets another line in its place. Raises
    Stopped if the disk does not take it.
    """
    line = _line([row.get(c, "") for c in COLUMNS])
    try:
        header, *lines = (path.read_text().splitlines(keepends=True) if path.exists() else []) or [""]
        rows = [one for one in lines if one.endswith("\n")]
        again = bool(rows) and rows[-1].split(",")[0] == str(row["interval"])
        if header != _line(COLUMNS):  # of an older release: its rows have fewer columns
            rows = [_line([old.get(c) or "" for c in COLUMNS]) for old in csv.DictReader([header, *rows])]
        elif rows == lines and not again and len(rows) < 2 * most:
            with path.open("a") as file:
                file.write(line)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        rows_kept = [*(rows[:-1] if again else rows), line][-most:]
        write_file(path, "".join([_line(COLUMNS), *rows_kept]).encode())
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise Stopped(f"{path}: {getattr(fault, 'strerror', fault)}, expected to write how an interval ended") from None


def numbered(path: Path) -> int:
    """The interval of the last whole line of the table at `path`; 0: it has none."""
    with suppress(OSError, ValueError, IndexError):
        lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return int(lines[-1].split(",")[0])
    return 0


# --- the last interval, and how many have ended how ---

LAST = "last interval"  #: of the ledger's notes


def last(ledger: Ledger, path: Path) -> Interval | None:
    """The last interval, with the counts of all; those of before an update, as far as the table at `path` has them."""
    blob = ledger.note(LAST)
    with suppress(msgspec.MsgspecError):
        if blob is not None:
            return msgspec.json.decode(blob, type=Interval)
    with suppress(OSError, ValueError, KeyError, csv.Error, msgspec.MsgspecError):
        rows = list(csv.DictReader(path.read_text().splitlines()))
        counts = Counter(_key(row["outcome"], row["cause"]) for row in rows)
        names = {key: rows[-1][key].split() for key in ("held", "absent", "refused")}
        at = rows[-1]["ended"]
        return _interval(rows[-1] | names | {"interval": int(rows[-1]["interval"]), "held": {}}, counts, at)
    return None


def count(ledger: Ledger, before: Interval | None, row: Document) -> Interval:
    """An interval has ended: it is the last one now, durably. One that was counted before its process died is counted
    once.
    """
    counts = Counter(before.counts if before else {})
    if before is not None and before.number == row["interval"]:
        counts[_key(before.outcome, before.cause)] -= 1
    counts[_key(row["outcome"], row["cause"])] += 1
    interval = _interval(row, counts, row["ended"])
    ledger.keep_note(LAST, msgspec.json.encode(interval))
    return interval


def _interval(row: Document, counts: Counter[str], at: str) -> Interval:
    held = dict(list(row["held"].items())[:NAMED])
    absent, refused = (tuple(row[key][:NAMED]) for key in ("absent", "refused"))
    known = {key: n for key, n in sorted(counts.items()) if n > 0}
    return Interval(
        number=row["interval"],
        outcome=row["outcome"],
        cause=row["cause"],
        held=held,
        absent=absent,
        refused=refused,
        at=at,
        counts=known,
    )


def _key(outcome: str, cause: str) -> str:
    return cause if outcome == "missed" else outcome


def prune(directory: Path, most: int) -> None:
    """Removes the oldest records, with their tables, beyond the last `most`; one that resists stays."""
    try:
        records = sorted(directory.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in records[: max(len(records) - most, 0)]:
            for table in directory.glob(f"{path.stem}-*.csv"):
                system.machine.unlink(table)
            system.machine.unlink(path)
    except OSError:
        return


def _line(values: Any) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow([str(v).replace("\n", " ") for v in values])
    return text.getvalue()


def utc(moment: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
