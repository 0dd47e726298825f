"""`hushgrid attack`: what an eavesdropper recovers from a run, written beside it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

import numpy as np

from hushgrid.broker.report.run_directory import mapping
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Declared
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.lab.attacks import registry
from hushgrid.lab.attacks.answers import judged
from hushgrid.lab.attacks.base import Attacked, Recovered
from hushgrid.lab.attacks.page import page
from hushgrid.lab.attacks.transcript import Transcript, read
from hushgrid.lab.inversion.averaged import behind_noise
from hushgrid.lab.inversion.pictures import png, shape_of, sheet
from hushgrid.lab.inversion.recovered import NONE, Gradients, Rows
from hushgrid.lab.inversion.rows import rows_of
from hushgrid.lab.inversion.scores import score, together, truth
from hushgrid.node.problems.records.section import DataPlan

PLACE = "attack"  #: in the run directory
SHOWN = 12  #: images of a node in its picture, at most
PICTURES = 24  #: nodes with a picture, at most


def attack(run_dir: Path, held: Path | None = None, shape: str | None = None) -> Document:
    """Attacks a run by its transcript, writes RUN_DIR/attack/ (replacing it) and returns what `--json` prints.

    held: a directory with the true rows, n<i>.npz of A and b. shape: "HxW". Raises InputError, one line.
    """
    run_dir = Path(run_dir)
    transcript = read(run_dir)
    recorded = _told(run_dir)
    attacked = made(transcript, held, shape)
    pictures = _pictures(attacked)
    summary = {
        "name": recorded.get("name", transcript.plan.name),
        "algorithm": transcript.algorithm.name,
        "variant": recorded.get("variant", transcript.algorithm.variant),
        "upheld": (recorded.get("privacy") or {}).get("upheld"),
        "messages": len(transcript.messages),
        "gradients": {
            node: {"count": len(seen.g), "complete": int(seen.complete.sum()), "what": seen.what}
            for node, seen in attacked.recovered.gradients.items()
        },
        "rows": {node: _row_summary(rows) for node, rows in attacked.rows.items()},
        "loads": {
            node: {
                "count": len(loads.d),
                "residual": loads.residual,
                "what": loads.what,
                "consistent": loads.consistent,
            }
            for node, loads in attacked.recovered.loads.items()
        },
        "answers": {node: loads._asdict() for node, loads in attacked.answers.items()},
        "sums": len(attacked.recovered.arrays.get("g_sum", ())),
        "sums_at_site": int(np.sum(attacked.recovered.arrays.get("of_site_sum", 0))),
        "alone": sorted(name.removeprefix("alone_") for name in attacked.recovered.arrays if name.startswith("alone_")),
        "states": list(attacked.recovered.states),
        "recycled": attacked.recovered.recycled,
        "arrays": f"{PLACE}/recovered.npz",
        "pictures": [f"{PLACE}/{name}" for name in pictures],
        "scores": attacked.scores,
    }
    _write(run_dir, attacked, pictures, summary)
    return summary


def made(transcript: Transcript, held: Path | None = None, shape: str | None = None) -> Attacked:
    """All attacks that fit what was heard, and the rows behind the gradients.

    Raises InputError if `held` is no directory.
    """
    recovered = Recovered()
    for one in registry.fitting(transcript):
        recovered.add(one.recover(transcript))
    records = isinstance(transcript.problem, DataPlan)
    rows, truths, nodes, answers = {}, {}, {}, {}
    form = shape_of(shape, transcript.problem.features) if records else None
    if held is not None and not held.is_dir():
        raise InputError(f"--truth {held}: found no such directory, expected one with {transcript.nodes[0]}.npz")
    for node in transcript.nodes if records else ():
        if node not in recovered.gradients and node not in recovered.rows:
            continue
        f, seen = transcript.problem.declared(transcript.place[node]), recovered.gradients.get(node)
        recovered_rows = recovered.rows.get(node)
        rows[node] = recovered_rows if recovered_rows is not None else behind(f, seen) if seen is not None else NONE
        if held is not None:
            truths[node] = truth(held, node, f)
            nodes[node] = score(f, seen, rows[node], truths[node], form)
        if (verdict := judged(transcript, node, seen, truths.get(node))) is not None:
            answers[node] = verdict
    return Attacked(transcript, recovered, rows, truths, answers, form, together(nodes) if held is not None else None)


def behind(f: Declared, seen: Gradients) -> Rows:
    """The rows behind a node's gradients, or the guess that its noisy answers allow."""
    return rows_of(f, seen) if seen.what == "gradient" else behind_noise(f, seen)


def _told(run_dir: Path) -> DocumentView:
    path = run_dir / "result.json"
    if not path.is_file():
        raise InputError(f"{run_dir}: found no result.json, expected a run directory")
    return mapping(path, json.loads)


def _row_summary(rows: Rows) -> Document:
    residual = float(rows.residual) if isfinite(rows.residual) else None
    return {"count": len(rows.rows), "method": rows.method, "residual": residual, "consistent": rows.consistent}


def _pictures(attacked: Attacked) -> dict[str, bytes]:
    """A picture a node with rows, by its file's name: originals above, recovered below."""
    pictures = {}
    for node, rows in list(attacked.rows.items())[:PICTURES]:
        if attacked.shape is None or not len(rows.rows):
            continue
        beside = attacked.beside(node)
        lines = [rows.rows[:SHOWN]] if beside is None else [beside.true[:SHOWN], beside.recovered[:SHOWN]]
        pictures[f"{node}.png"] = png(sheet([list(line) for line in lines], attacked.shape))
    return pictures


def _write(run_dir: Path, attacked: Attacked, pictures: Mapping[str, bytes], summary: DocumentView) -> None:
    partial, place = run_dir / f".{PLACE}.partial-{os.getpid()}", run_dir / PLACE
    arrays: Document = dict(attacked.recovered.arrays)
    for node, seen in attacked.recovered.gradients.items():
        arrays |= {f"at_{node}": seen.points, f"g_{node}": seen.g, f"when_{node}": seen.when}
    for node, rows in attacked.rows.items():
        if rows is not NONE:
            arrays |= {f"rows_{node}": rows.rows, f"labels_{node}": rows.labels}
    try:
        partial.mkdir()
        np.savez(partial / "recovered.npz", allow_pickle=False, **arrays)
        for name, content in pictures.items():
            (partial / name).write_bytes(content)
        (partial / "attack.html").write_text(page(attacked, pictures, summary), encoding="utf-8")
        if place.is_symlink() or place.is_file():
            raise InputError(f"{place}: found a file, expected a directory of an earlier attack, or none")
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
    except OSError as error:
        raise InputError(f"{error.filename or place}: {error.strerror or error}, expected a writable place") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
