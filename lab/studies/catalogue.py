"""`hushgrid study [NAME]`: which studies there are; each is imported if it is the one that runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import asdict as fields_of

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.jit import MODE
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.measure import footer
from hushgrid.node.schema.yaml_file import convert, set_path


class Study(NamedTuple):
    """A module of lab/studies whose `study()` makes pages of tables and pictures."""

    summary: str
    minutes: str  #: on two cores
    module: str


STUDIES = {
    "figures": Study(
        "linearised ADMM over zones: Figures 3 and 4, the same methods at honest totals", "10 to 20", "papers.figures"
    ),
    "relay": Study(
        "RECAL, a token at random: Tables I to V with all rivals, honest totals, a sensor ring on Adult",
        "15 to 60",
        "papers.relay",
    ),
    "recovered-images": Study(
        "images that an eavesdropper recovers from RECAL and from the star, by the noise",
        "1 to 4",
        "papers.recovered_images",
    ),
    "relay-figures": Study(
        "RECAL and its rivals on images of two classes: Figures 2 to 9, gradient matching among them",
        "10 to 60",
        "papers.relay_figures",
    ),
    "findings": Study(
        "claims of the papers that do not hold: totals, noise that decays, a wrong limit, loads of zones",
        "2 to 5",
        "papers.findings",
    ),
    "incremental": Study(
        "I-ADMM, a token on a cycle: Figures 3 to 6, what the token reveals", "5 to 15", "papers.incremental_leak"
    ),
    "league": Study(
        "every data algorithm at one honest total epsilon, ranked by what a device holds", "20 to 120", "league"
    ),
    "dpp2-figures": Study(
        "DPP2, rounds among neighbours: Figures 1 to 3 with the honest epsilon, Table I at one total",
        "6 to 20",
        "papers.dpp2_figures",
    ),
    "recal-rates": Study("RECAL, a token: the rate of Theorem 3 and the count (18), measured", "1", "recal_rates"),
    "dpp2-rates": Study("DPP2: the rates of Theorems 1 and 2, measured", "1 to 3", "dpp2_rates"),
    "recycled": Study(
        "Recycled ADMM and its rivals: Figures 1 to 5 on Adult at honest totals", "15 to 35", "papers.recycled"
    ),
    "penalty-functions": Study(
        "linearised ADMM: the penalty of (4.2) beside the projection, as l grows; Figure 2",
        "1",
        "penalty_functions",
    ),
    "federated": Study(
        "federated learning around a coordinator: testing error of digits against epsilon, E, the box and the penalty",
        "5 to 15",
        "papers.federated",
    ),
    "day-price": Study(
        "a private day ahead: cost, imbalance and what storage is worth, by epsilon and unit", "5 to 10", "day_price"
    ),
    "accuracy": Study(
        "objective, feasibility and central optima compared with independent reference code",
        "1 to 3",
        "papers.accuracy",
    ),
}

#: Studies that wrote their page and are gone: the last commit that has their code and all of their figures.
LAST_COMMIT = "aca80af"
RETIRED = {
    "air": "air",
    "audit": "audit",
    "finishing": "finishing",
    "masked": "masked",
    "minimisers": "adult",
    "privacy-price": "privacy-price",
}


def listing() -> str:
    """Every study by its name with how long it takes, then the retired ones with their pages."""
    width = max(map(len, (*STUDIES, *RETIRED)))
    return "\n".join(
        [
            *(f"{name:{width}}  {study.summary} ({study.minutes} minutes)" for name, study in STUDIES.items()),
            *(f"{name:{width}}  {_retired(name)}" for name in RETIRED),
        ]
    )


def _retired(name: str) -> str:
    return f"retired: docs/studies/{RETIRED[name]}.md is its page, commit {LAST_COMMIT} has its code"


def run(name: str, folder: Path | None = None, assignments: Sequence[str] = ()) -> None:
    """Repeat one study: its tables on stdout; with a folder, its pages, CSV files and pictures there.

    assignments: path.to.key=value, of a study that has `Keys`. Raises InputError if there is no such study or key, or
    if the study is retired.
    """
    if name in RETIRED:
        raise InputError(f"study: found {name!r}, {_retired(name)}; expected one of {', '.join(STUDIES)}")
    if name not in STUDIES:
        raise InputError(f"study: found {name!r}, expected one of {', '.join(STUDIES)}")
    began = time.perf_counter()
    module, changed = import_module(f"hushgrid.lab.studies.{STUDIES[name].module}"), Document()
    for assignment in assignments:
        set_path(changed, assignment)
    if changed and not hasattr(module, "Keys"):
        raise InputError(f"study: found --set {assignments[0]}, expected none ({name} has no keys)")
    pages = module.study(**(fields_of(convert(changed, module.Keys, "study")) if changed else {}))
    seconds = time.perf_counter() - began
    if folder is None:
        print("\n".join(page.markdown() for page in pages))
        return
    origin = [f"hushgrid study {name} --pages, kernels {MODE}, {seconds:.0f} s", *footer().splitlines()]
    for page in pages:
        print(*page.write(folder, origin), sep="\n")
