"""`hushgrid study [NAME]`: which studies there are; each is imported if it is the one that runs."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from hushgrid.kernels.errors import InputError


class Study(NamedTuple):
    about: str
    takes: str  #: on two cores
    module: str
    function: str  #: without arguments: repeats the study, to files or as a table


STUDIES = {
    "figures": Study(
        "linearised ADMM over zones: Figures 3 and 4, the same methods at honest totals",
        "10 to 20 minutes",
        "hushgrid.lab.studies.papers.figures",
        "figures",
    ),
    "relay": Study(
        "RECAL, a token at random: Tables I to V, honest totals, a sensor ring on Adult",
        "5 to 10 minutes",
        "hushgrid.lab.studies.papers.relay",
        "relay",
    ),
    "recovered-images": Study(
        "images that an eavesdropper recovers from RECAL and from the star, without, with published and with the gate's noise",
        "1 to 4 minutes",
        "hushgrid.lab.studies.papers.recovered_images",
        "study",
    ),
    "relay-figures": Study(
        "RECAL on images of two classes: Figures 2 to 9, gradient matching among them",
        "4 to 10 minutes",
        "hushgrid.lab.studies.papers.relay_figures",
        "study",
    ),
    "findings": Study(
        "claims of the papers that do not hold: totals, noise that decays, a wrong limit, loads of zones",
        "2 to 5 minutes",
        "hushgrid.lab.studies.papers.findings",
        "study",
    ),
    "incremental": Study(
        "I-ADMM, a token on a cycle: Figures 3 to 6, what the token tells",
        "2 to 5 minutes",
        "hushgrid.lab.studies.papers.incremental_leak",
        "study",
    ),
    "league": Study(
        "every data algorithm at one honest total epsilon, ranked by what a device holds",
        "20 minutes to 2 hours",
        "hushgrid.lab.studies.league",
        "league",
    ),
    "air": Study(
        "twelve air-quality stations together and alone, one of them young: warning, predicting, hiding an hour or a day",
        "7 to 25 minutes",
        "hushgrid.lab.studies.air",
        "study",
    ),
    "masked": Study(
        "masked sums beside a trusted curator and each device's own noise: Adult and digits, 8 and 60 devices",
        "5 to 15 minutes",
        "hushgrid.lab.studies.masked",
        "study",
    ),
    "finishing": Study(
        "one answer of each node, and rounds of averaging after the last, on the league's problem",
        "1 to 3 minutes",
        "hushgrid.lab.studies.finishing",
        "study",
    ),
    "minimisers": Study(
        "three ways to make a node's minimiser private, on Adult at one total",
        "2 to 5 minutes",
        "hushgrid.lab.studies.minimisers",
        "study",
    ),
    "dpp2-figures": Study(
        "DPP2, rounds among neighbours: Figures 1 to 3, the honest epsilon beside",
        "1 to 3 minutes",
        "hushgrid.lab.studies.papers.dpp2_figures",
        "figures",
    ),
    "recycled": Study(
        "Recycled ADMM and its rivals: Figures 1 to 5 on Adult at honest totals",
        "15 to 35 minutes",
        "hushgrid.lab.studies.papers.recycled",
        "study",
    ),
    "privacy-price": Study(
        "dispatches at noisy loads, operated with the true ones: cost and violated limits",
        "5 to 15 minutes",
        "hushgrid.lab.studies.privacy_price",
        "study",
    ),
    "renewing": Study(
        "a budget that renews, over a day of changing loads: fresh answers, their noise, their age",
        "4 to 10 minutes",
        "hushgrid.lab.studies.renewing",
        "study",
    ),
    "federated": Study(
        "federated learning around a coordinator: testing error of digits against epsilon, E and the box",
        "1 to 5 minutes",
        "hushgrid.lab.studies.papers.federated",
        "study",
    ),
    "audit": Study(
        "what games and canaries measure of claims that hold, of every algorithm's, and of noise that is wrong",
        "5 to 25 minutes",
        "hushgrid.lab.studies.auditing",
        "study",
    ),
    "accuracy": Study(
        "objective, feasibility and central optima beside what independent reference code found",
        "1 to 3 minutes",
        "hushgrid.lab.studies.papers.accuracy",
        "show",
    ),
}


def listing() -> str:
    """Every study by its name, with how long it takes."""
    width = max(map(len, STUDIES))
    return "\n".join(f"{name:{width}}  {study.about} ({study.takes})" for name, study in STUDIES.items())


def run(name: str) -> None:
    """Repeat one study. Raises InputError for a name that is none."""
    if name not in STUDIES:
        raise InputError(f"study: found {name!r}, expected one of {', '.join(STUDIES)}")
    study = STUDIES[name]
    getattr(import_module(study.module), study.function)()
