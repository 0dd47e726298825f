"""The tables of a ledger: how a new file is made, and how one of an older format is brought up to date."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.node.durable import sync_folder
from hushgrid.node.privacy.marks import highest
from hushgrid.node.wire import Mark

FORMAT = 2
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE spend (no INTEGER PRIMARY KEY, run BLOB, answer INTEGER, kind TEXT NOT NULL, value REAL NOT NULL,
                    sensitivity REAL, scale REAL, grid REAL, adjacency TEXT NOT NULL, sampler TEXT NOT NULL,
                    mu2 REAL NOT NULL, at TEXT NOT NULL);
CREATE TABLE run (id BLOB PRIMARY KEY, plan BLOB NOT NULL, status TEXT NOT NULL, state BLOB, last BLOB,
                  started TEXT NOT NULL, spends INTEGER NOT NULL DEFAULT 0);
CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE history (run BLOB, round INTEGER, residual REAL, messages INTEGER, bytes INTEGER, PRIMARY KEY (run, round));
CREATE TABLE peer (node TEXT PRIMARY KEY, mark BLOB NOT NULL);
"""


def create(path: Path, node: str, durable: bool) -> None:
    """Makes a new ledger, under its name only once it is whole; one that is there already stays.

    It is made without a write-ahead log, so that whatever is later copied of it has its tables and its identity.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent):
        if path.exists():
            return
        log = path.with_name(path.name + "-wal")
        if log.exists():
            raise InputError(f"{path}: found its log {log.name} without it, expected both files or neither")
        new = path.with_name(path.name + ".new")
        parts = (new, new.with_name(new.name + "-journal"))
        try:
            for part in parts:  # of an attempt that was cut short
                part.unlink(missing_ok=True)
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(new, isolation_level=None)) as db:
                db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
                db.execute("BEGIN")
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                values = {"format": FORMAT, "ledger": os.urandom(16), "node": node, "session": 0, "data_version": 1}
                db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
                db.execute("COMMIT")
            os.replace(new, path)
        except BaseException:
            for part in parts:
                part.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process makes a ledger in this folder meanwhile: two first starts must not make two of one name."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def migrate(db: sqlite3.Connection) -> None:
    """From format 1, inside the caller's transaction. What was counted by its clip is one relation from now on."""
    db.execute("ALTER TABLE run ADD COLUMN spends INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE run SET spends = (SELECT count(*) FROM spend WHERE spend.run = run.id)")
    db.execute("UPDATE spend SET adjacency = 'replace-one-record' WHERE adjacency LIKE 'replace-one-record %'")
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    # Format 1 knew only whose mark was accepted. Each `accept` left one gap, in the same order, with its price.
    accepted: dict[bytes, Mark] = {}
    gaps = db.execute("SELECT no, value, mu2 FROM spend WHERE kind = 'gap' ORDER BY no").fetchall()
    for text, (no, value, mu2) in zip((meta.get("accepted") or "").split(), gaps, strict=False):
        if (ledger := bytes.fromhex(text)) != meta["ledger"]:
            (before,) = db.execute("SELECT coalesce(max(no), 0) FROM spend WHERE no < ?", (no,)).fetchone()
            nonprivate = value == float("inf")
            mark = Mark(ledger, no - before, 0.0 if nonprivate else value, mu2, nonprivate)
            accepted[ledger] = highest(accepted.get(ledger), mark)
    told = [msgspec.msgpack.decode(meta["told"], type=Mark)] if "told" in meta else []
    values = {
        "accepted": msgspec.msgpack.encode(list(accepted.values())),
        "told": msgspec.msgpack.encode(told),
        "data_version": 1,
        "format": FORMAT,
    }
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
