"""The tables of a ledger: how a new file is made, and how one of an older format is brought up to date."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.node import system
from hushgrid.node.durable import sync_folder
from hushgrid.node.privacy.ledger_rows import Counted, steps
from hushgrid.node.privacy.marks import Price

#: Frozen: releases from 0.2.0 on write it.
FORMAT = 4
FORMATS = (2, FORMAT)  #: that are read: 2 is that of release 0.1.0. No release has written another
#: What a device could be asked about in release 0.1.0, by `problem.kind`.
MODELS = ("zones", "least-squares", "logistic", "softmax")
#: `total`: sums of spends, packed (`Counted`). Its scope is a run's id, or the text 'all', or 'version' (the spends of
#: the data version of now), or 'day D of n' (those about means of n days, D among them, from 1970 on; `meta` has the
#: last day and n of such a version), or 'dated' (all of these).
#: `past`: spends of ended runs that are no rows any more, by the hour of running time:
#: numbers `first` to `no`, and {adjacency: sums}. `known`: ended runs of this session that are no rows any more.
#: `secret`: at most one row, the key of the run that was joined last if that run is masked and may go on (`keyed`:
#: whether a run has ever had one). So the row never moves, and `secure_delete` overwrites what of it stands in the
#: table's one page: its first 4000 bytes or, if it is longer, its first 480 at least.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE spend (no INTEGER PRIMARY KEY, run BLOB, answer INTEGER, kind TEXT NOT NULL, value REAL NOT NULL,
                    sensitivity REAL, scale REAL, grid REAL, adjacency TEXT NOT NULL, sampler TEXT NOT NULL,
                    mu2 REAL NOT NULL, at TEXT NOT NULL, ran REAL NOT NULL DEFAULT 0,
                    version INTEGER NOT NULL DEFAULT 1, honest INTEGER NOT NULL DEFAULT 0);
CREATE TABLE run (id BLOB PRIMARY KEY, plan BLOB NOT NULL, status TEXT NOT NULL, state BLOB, last BLOB,
                  started TEXT NOT NULL, spends INTEGER NOT NULL DEFAULT 0, session INTEGER NOT NULL DEFAULT 0,
                  first INTEGER NOT NULL DEFAULT 0, keyed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE history (run BLOB, round INTEGER, residual REAL, messages INTEGER, bytes INTEGER, PRIMARY KEY (run, round));
CREATE TABLE peer (node TEXT PRIMARY KEY, mark BLOB NOT NULL);
CREATE TABLE total (scope, adjacency TEXT, sums BLOB NOT NULL, PRIMARY KEY (scope, adjacency)) WITHOUT ROWID;
CREATE TABLE past (no INTEGER PRIMARY KEY, first INTEGER NOT NULL, ran REAL NOT NULL, version INTEGER NOT NULL,
                   sums BLOB NOT NULL);
CREATE TABLE known (run BLOB PRIMARY KEY, session INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (run BLOB PRIMARY KEY, key BLOB NOT NULL);
"""  # noqa: E501  (the text is the schema that a file keeps)


def create(path: Path, node: str, durable: bool) -> None:
    """Makes a new ledger, under its name only once it is whole; one that is there already stays.

    It is made without a write-ahead log, so that whatever is later copied of it has its tables and its identity.
    Raises InputError if a log stands there without its ledger.
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
                system.machine.unlink(part)
            system.machine.close(system.machine.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(system.machine.connect(new)) as db:
                db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
                db.execute("BEGIN")
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                values: dict[str, object] = {"format": FORMAT, "ledger": system.machine.entropy(16), "node": node}
                values |= {"session": 0, "data_version": 1, "ran": 0.0, "price": Price().packed()}
                values |= {"kinds": ""}  # of questions: a device notes them (`Ledger.born_with`)
                db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
                db.execute("COMMIT")
            system.machine.replace(new, path)
        except BaseException:
            for part in parts:
                system.machine.unlink(part)
            raise
        if durable:
            sync_folder(path.parent)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process makes a ledger in this folder meanwhile: two first starts must not make two of one name."""
    handle = system.machine.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        system.machine.lock(handle, fcntl.LOCK_EX)
        yield
    finally:
        system.machine.close(handle)


def migrate(db: sqlite3.Connection) -> None:
    """From format 2, inside the caller's transaction: all of the way, or nothing.

    Every spend counts as made now, at running time 0, in the data version of now. No run had a key, no answer was a
    share of a masked sum, and no statistic was asked for.
    """
    for column, default in (("ran REAL", 0), ("version INTEGER", 1), ("honest INTEGER", 0)):
        db.execute(f"ALTER TABLE spend ADD COLUMN {column} NOT NULL DEFAULT {default}")
    for column in ("session", "first", "keyed"):
        db.execute(f"ALTER TABLE run ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    _create_tables(db, "total", "past", "known", "secret")
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    db.execute("UPDATE spend SET version = ?", (meta["data_version"],))
    unit = meta.get("unit") or 0.0
    price, sums = Price(), dict[tuple[object, str], Counted]()
    for kind, value, mu2, adjacency in db.execute("SELECT kind, value, mu2, adjacency FROM spend ORDER BY no"):
        price = price.plus(kind, value, mu2, steps(adjacency, f"bounded-change {unit!r}") if unit else 1)
    row = "run, adjacency, kind, value, mu2"
    for run, adjacency, *equal in db.execute(f"SELECT {row}, count(*) FROM spend GROUP BY {row}"):
        for scope in ("all", "version", *([] if run is None else [run])):
            sums[scope, adjacency] = sums.get((scope, adjacency), Counted()).plus(*equal)
    rows = [(*key, counted.packed()) for key, counted in sums.items()]
    db.executemany("INSERT INTO total VALUES (?, ?, ?)", rows)
    first = db.execute("SELECT min(no), run FROM spend WHERE run NOT NULL GROUP BY run").fetchall()
    db.executemany("UPDATE run SET first = ? WHERE id = ?", first)
    values = {"ran": 0.0, "price": price.packed(), "kinds": " ".join(MODELS), "format": FORMAT}
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


def _create_tables(db: sqlite3.Connection, *names: str) -> None:
    for statement in SCHEMA.split(";"):
        if statement.split()[2:3] in [[name] for name in names]:
            db.execute(statement)
