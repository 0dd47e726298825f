"""`hushgrid plan`: what an epsilon buys, and how to spend it, before any data are touched."""

from __future__ import annotations

import argparse
import json
import math
import os
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.simulation.interrupts import EndedInALine
from hushgrid.cli.completion import plug_algorithms, scenario_argument
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from hushgrid.lab.planning.samples import Samples
    from hushgrid.lab.planning.search import Candidate, PlanResult


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    scenario_argument(parser)
    add("--epsilon", metavar="E", type=float, help="total of each node over the run [the scenario's]")
    add(
        "--rows", metavar="N", type=int, help="rows of all nodes together [problem.data.rows, or what the section says]"
    )
    add("--features", metavar="Q", type=int, help="entries of a row [problem.data.features]")
    add(
        "--loss",
        metavar="TAU",
        type=float,
        help="say how many rows a node needs so that its model's expected loss is at most TAU beyond the best one's",
    )
    add("--seeds", metavar="N", type=int, help="runs of each choice that is shown [5 to 20, as time allows]")
    add("--workers", metavar="N", type=int, help="processes [one a core]")
    add(
        "--out",
        metavar="FILE",
        type=Path,
        help="write the scenario with the chosen values to FILE, which must not exist",
    )
    add("--set", metavar="path.to.key=value", action="append", default=[], help="replace a value; may be repeated")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--quiet", action="store_true", help="show no progress on stderr")


def main(options: argparse.Namespace) -> int:
    with EndedInALine(options.program):
        return _plan(options)


def _plan(o: argparse.Namespace) -> int:
    from hushgrid.broker.simulation.progress import Progress
    from hushgrid.lab.planning.samples import samples
    from hushgrid.lab.planning.search import planned
    from hushgrid.node.schema.yaml_file import lay, read_yaml, set_path

    for key in ("rows", "features", "seeds", "workers"):
        if (value := getattr(o, key)) is not None and value < 1:
            raise InputError(f"--{key}: found {value}, expected at least 1")
    if o.loss is not None and not (0 < o.loss < math.inf and o.out is None):
        wrong = f"{o.loss:g}" if o.out is None else "--out beside it"
        raise InputError(f"--loss: found {wrong}, expected a positive number alone: it chooses nothing")
    if o.out is not None and (o.out.exists() or not o.out.absolute().parent.is_dir()):
        raise InputError(
            f"--out {o.out}: found {'a file' if o.out.exists() else 'no such directory'}, expected a new file"
        )
    plug_algorithms(o)
    file = find(o.scenario)
    raw = read_yaml(file)
    for assignment in o.set:
        set_path(raw, assignment)
    if o.epsilon is not None:
        if not isinstance(raw.get("privacy"), dict):
            raise InputError(f"{file}: privacy: found no section, expected one that --epsilon belongs to")
        raw["privacy"].pop("per_answer", None)
        lay(raw, "privacy.epsilon", o.epsilon)
    with Progress(quiet=o.quiet) as progress:
        how = {key: getattr(o, key) for key in ("rows", "features", "seeds", "workers")} | {"say": progress.phase}
        if o.loss is not None:
            print(needed(samples(raw, o.loss, str(file), **how), o.loss, as_json=o.json))
            return 0
        result = planned(raw, str(file), **how)
    print(json.dumps(plain(result), indent=2) if o.json else as_text(result, raw))
    if o.out is not None:
        write(result, raw, file, o.out)
        if not o.json:
            print(f"  written: {o.out}")
    return 0


def as_text(result: PlanResult, raw: Document) -> str:
    """The plan as text: a short table, what stands beside it, and what was assumed."""
    from hushgrid.lab.planning.choices import scenario_key
    from hushgrid.lab.planning.synthetic import WORDS
    from hushgrid.node.columns import columns

    key = scenario_key(raw)
    header = [
        "",
        "answers",
        *[key] * bool(key),
        "clip",
        "mechanism",
        "besides",
        "finish",
        "excess loss",
        "quartiles",
        result.measure,
    ]
    rows = [_cells(li, key, "*" if li is result.chosen else "") for li in result.best]
    rows += [_cells(li, key, li.title) for li in result.beside]
    return "\n".join(
        [
            result.description,
            "made-up data, no data file was opened; assumed:",
            *(f"  {sentence}" for sentence in WORDS),
            f"  up to {result.rows:,} of each node's rows are made up, the noise is that of all",
            "medians over seeds of rows and noise; trust the order of the choices more than the figures",
            columns(rows, header, indent=2),
            f"  * the fewest answers that are as good as the best but for 10 %; {result.played} runs, "
            f"{result.seeds} seeds shown",
            *_promised(result),
            "  excess loss: of a node's own model over the best model of all rows, per unit of scale",
            "  each alone: a node's own rows, without noise, for nothing leaves it",
        ]
    )


def needed(result: Samples, loss: float, *, as_json: bool) -> str:
    """How many rows are enough for a loss."""
    import numpy as np

    from hushgrid.node.columns import columns

    if as_json:
        tried = [one._asdict() for one in result.tried]
        return json.dumps(
            {"about": result.description, "data": "made up", "tried": tried, "rows": result.enough}, indent=2
        )
    rows = []
    for one in result.tried:
        low, high = np.percentile(one.beyond, (25, 75))
        without = f"{np.median(one.without):.3g}"
        rows.append([f"{one.rows:,}", f"{one.middle:.3g}", f"{low:.2g}-{high:.2g}", f"{one.error:.3f}", without])
    enough = "no number that was tried is" if result.enough is None else f"about {result.enough:,} rows a node are"
    made = max(one.made for one in result.tried)
    return "\n".join(
        [
            f"{result.description}, as the scenario stands",
            columns(rows, ["rows a node", "loss beyond", "quartiles", result.measure, "without privacy"], indent=2),
            f"  {enough} enough for an expected loss of at most {loss:g} beyond that of the best model",
            f"  made-up rows, {made:,} of a node at most: with more of them only the noise falls",
        ]
    )


def _promised(result: PlanResult) -> list[str]:
    """What the algorithm's own paper promises of the choices that are shown."""
    import numpy as np

    lines = []
    for candidate in (result.chosen, result.beside[0]):
        if candidate.promised is not None:
            theorem, bound = candidate.promised
            if_ = " if no dual grows beyond its gamma" * (theorem == "5.5")  # Assumption 5.2 (i)
            lines.append(
                f"  {candidate.title or 'the chosen one'}: an excess loss of at most {bound:.3g} by Theorem {theorem} "
                f"of the paper{if_}, {float(np.median(candidate.excess)):.3g} as measured"
            )
    return lines


def _cells(candidate: Candidate, key: str, title: str) -> list[str]:
    import numpy as np

    c, middle = candidate.choice, float(np.median(candidate.excess))
    low, high = (float(v) for v in np.percentile(candidate.excess, (25, 75)))
    chosen = [
        str(c.answers or "-"),
        *[_number(c.step)] * bool(key),
        _number(c.clip),
        c.mechanism,
        c.besides,
        str(candidate.gossip or "-"),
    ]
    if candidate.title:
        chosen = ["-"] * len(chosen)
    error = float(np.median(candidate.error))
    wrong = f"{error:.3g}" if candidate.choice and error > 1 else f"{error:.3f}"
    return [title, *chosen, f"{middle:.3g}", f"{low:.2g}-{high:.2g}", wrong]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def plain(result: PlanResult) -> Document:
    """The plan as JSON."""

    def one(candidate: Candidate) -> Document:
        facts = (
            {"title": candidate.title} if candidate.title else candidate.choice._asdict() | {"gossip": candidate.gossip}
        )
        values = {"excess_loss": candidate.excess.tolist(), "error": candidate.error.tolist()}
        return facts | {key: [v if v < float("inf") else None for v in each] for key, each in values.items()}

    return {
        "about": result.description,
        "data": "made up",
        "measure": result.measure,
        "seeds": result.seeds,
        "runs": result.played,
        "chosen": one(result.chosen),
        "choices": [one(candidate) for candidate in result.best],
        "beside": [one(candidate) for candidate in result.beside],
    }


def write(result: PlanResult, raw: Document, file: Path, out: Path) -> None:
    """Writes the scenario with the chosen values; the paths in `file` become relative to the place of `out`.

    Raises InputError if `out` cannot be written.
    """
    import yaml

    from hushgrid.lab.planning.choices import laid, rounds_by
    from hushgrid.node.config.scenario import scenario_from
    from hushgrid.node.durable import write_file

    made = deepcopy(raw)
    problem, data = made["problem"], made["problem"]["data"]

    def here(path: str) -> str:
        return os.path.relpath(file.absolute().parent / path, out.absolute().parent)

    for section, key in ((problem, "test"), (data, "libsvm"), (data, "csv"), (data.get("split"), "given")):
        if isinstance(section, dict) and isinstance(section.get(key), str):
            section[key] = here(section[key])
    if isinstance(data.get("files"), list):
        data["files"] = [here(path) for path in data["files"]]
    scenario = scenario_from(deepcopy(raw), str(file), file.parent)
    made = laid(made, result.chosen.choice, rounds_by(scenario, result.nodes), result.chosen.gossip)
    scenario_from(deepcopy(made), str(out), out.parent)
    text = (
        f"# {result.description}.\n# Chosen by hushgrid plan on made-up rows: expected excess loss {_excess(result)}.\n"
    )
    try:
        write_file(out, (text + yaml.safe_dump(made, sort_keys=False)).encode())
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}, expected a place for a file") from None


def _excess(result: PlanResult) -> str:
    import numpy as np

    return f"{float(np.median(result.chosen.excess)):.3g} (median of {result.seeds} seeds)"
