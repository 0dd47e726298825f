"""The report of every algorithm, variant and mechanism that runs says what was asked of the gate, in which pattern, and
no more.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from hushgrid.broker.report import quality
from hushgrid.broker.report.claims import claim_of
from hushgrid.broker.report.drawings import gridmap, plots
from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.base import gated
from hushgrid.kernels.algorithms.registry import ALGORITHMS, variants
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.lab.examples import examples
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.records.kind import KIND as RECORDS
from tests.support.runs.report_pages import Page
from tests.support.scenarios.guarded_scenarios import sums
from tests.support.scenarios.record_scenarios import GAUSSIAN, scenario

#: Penalties that differ by node, in place of those of an algorithm's examples.
UNLIKE = {name: {"eta": [0.5, 0.6, 0.7, 0.8]} for name in ("admm", "mradmm", "madmm")}
#: What a published section may have beside the declared examples: neither of I-ADMM's methods.
PUBLISHED: dict[str, tuple[dict[str, Any], ...]] = {"iadmm": ({"rho": 2.0},), "wadmm": ({"rho": 2.0},)}
ZONES = {"kind": "zones", "case": "case5", "zones": 2}
ON_ZONES: dict[str, dict[str, Any]] = {
    "ladmm": {},
    "consensus-admm": {"ac": "none"},
}  #: what more each says of its problem
CHANGES = ({"replace-one-record": {"clip": 1.0}}, {"bounded-change": 0.1})


def sections():
    """Every section that might run, with what of privacy belongs to it, and the problem where it is one of zones."""
    for section in on_records():
        yield *section, None
    for name, *section in on_zones():
        yield name, *section, ON_ZONES[name]


def on_records():
    for name in RECORDS.algorithms:
        short, unlike = examples(ALGORITHMS[name]), UNLIKE.get(name, {})
        yield name, {**short["none"][0], **unlike, "variant": "none"}, None
        for keys, mechanism, change in product(short["guarded"], ("laplace", "gaussian"), CHANGES):
            yield name, {**keys, **unlike}, {"mechanism": mechanism, "adjacency": change}
        for keys in (*short.get("published", ()), *PUBLISHED.get(name, ())):
            section = {**keys, **unlike, "variant": "published"}
            yield name, section, None
            for mechanism in ("laplace", "gaussian"):
                yield name, section, {"mechanism": mechanism, "adjacency": CHANGES[0]}


def on_zones():
    yield "consensus-admm", {"variant": "none"}, None
    for mechanism in ("laplace", "gaussian"):
        yield "consensus-admm", {}, {"mechanism": mechanism, "adjacency": CHANGES[1]}
    yield "ladmm", {"variant": "none"}, None
    for mechanism, mode in product(("laplace", "gaussian"), ("objective", "input", "output", "output-projected")):
        for variant in ("guarded", "published"):
            private = {"mechanism": mechanism, "mode": mode, "adjacency": CHANGES[1]}
            yield "ladmm", {"variant": variant}, private
            if mode == "objective":
                yield "ladmm", {"variant": variant}, private | {"at": "gradient"}


def on_sums():
    """Each statistic, with what of privacy belongs to it."""
    for kind, mechanism in product(STATISTICS, (None, "laplace", "gaussian")):
        private = {"mechanism": mechanism, "epsilon": 5.0, "delta": 1e-6 if mechanism == "gaussian" else None}
        over = {f"privacy.{key}": value for key, value in private.items()}
        yield sums(kind, over if mechanism else {"algorithm.variant": "none", "privacy": None})
    yield sums("histogram", GAUSSIAN | {"privacy.masked": {"corrupt": 1}})


def raw(name, section, privacy, zones):
    whole = scenario({"algorithm": {"name": name, "rounds": 4, **section}, "privacy": None})
    if privacy is not None:
        per = (
            {"per_answer": {"epsilon": 0.5, "delta": 0.01}} if privacy["mechanism"] == "gaussian" else {"epsilon": 50.0}
        )
        whole["privacy"] = privacy | per
    if zones is not None or ALGORITHMS[name].pattern == "star":
        nodes = whole.pop("network")["nodes"]
        whole["problem"]["data"]["nodes"] = nodes
    if zones is not None:
        whole["problem"] = ZONES | zones
    return whole


def runs():
    found = []
    every = [
        (name, section, privacy, zones, raw(name, section, privacy, zones))
        for name, section, privacy, zones in sections()
    ]
    every += [(f"sum {w['problem']['kind']}", {}, w.get("privacy"), None, w) for w in on_sums()]
    for name, section, privacy, zones, whole in every:
        try:
            scenario_from(whole)
        except InputError:
            continue  # it cannot run: what refuses it has tests of its own
        told = " ".join(str(v) for v in (*section.values(), *(privacy or {}).values()))
        if whole not in [w for _, w in found]:
            on = "zones " if zones is not None else ""
            found.append((re.sub(r"[^\w. -]", "", f"{name} {on}{told}"), whole))
    return found


RUNS = runs()
TOKEN = r"\b(tokens?|walks?|activations?|hops?|baton)\b"
FOREIGN = {
    "star": rf"{TOKEN}|neighbour|zone|p\.u\.",
    "star of zones": rf"{TOKEN}|neighbour|\brecords?\b",
    "token": r"\brounds?\b|around a coordinator|among neighbours|zone|p\.u\.",
    "neighbours": rf"{TOKEN}|around a coordinator|zone|p\.u\.",
}
OTHERWISE = {
    "gradient": r"minimiser|objective perturbation|output perturbation|perturbed once",
    "minimiser": r"gradient|Huberised|clipped to|perturbed once",
    "data": r"gradient|minimiser|clipped|fresh noisy copy",
    "statistic": r"gradient|minimiser|clipped|Huberised|perturbed once|model|optimum|objective",
}


def test_every_algorithm_and_variant_is_among_the_runs():
    found = {(w["algorithm"]["name"], w["algorithm"].get("variant", "guarded")) for _, w in RUNS}
    assert found == {(name, variant) for name, kind in ALGORITHMS.items() for variant in variants(kind)}


@pytest.mark.runs
@pytest.mark.parametrize("whole", [w for _, w in RUNS], ids=[label for label, _ in RUNS])
def test_a_report_names_what_was_asked_and_has_no_word_of_another_pattern_or_question(whole, tmp_path, monkeypatch):
    for drawn in ("lines", "bars"):
        monkeypatch.setattr(plots, drawn, lambda *_, **__: "<svg></svg>")
    monkeypatch.setattr(gridmap, "svg", lambda *_: "<svg></svg>")
    result = run(whole, out=tmp_path / "run")
    text = Page((tmp_path / "run" / "report.html").read_text()).text.split("Scenario, resolved")[0]
    section, privacy = whole["algorithm"], whole.get("privacy") or {}
    name, variant = section["name"], section.get("variant", "guarded")
    declared = scenario_from(whole).algorithm
    pattern, asked = declared.pattern, declared.asks(privacy.get("mode", ""))
    assert declared.title in text
    zones = whole["problem"]["kind"] == "zones"
    foreign = FOREIGN[f"{pattern} of zones" if zones else pattern]
    assert not (found := re.search(foreign, text)), text[found.start() - 80 : found.end() + 80]
    own = {"star": "around a coordinator", "token": "handing on a token", "neighbours": "among neighbours"}
    assert own[pattern] in text
    assert f"\n{quality.WORD[result.quality['verdict']].capitalize()}\n" in text
    assert text.count("The answer: ") == 1

    if variant == "none":
        assert f"Not private: this is the plain {'sum' if asked == 'statistic' else 'optimiser'};" in text
        assert not re.search(r"Each answer|objective perturbation|output perturbation|clipped|(?<!no )noise was", text)
        return
    if not gated(declared):
        assert "Privacy claim not upheld: " in text
        assert not re.search(r"Each answer|clipped to|Huberised|guarded", text)
        return
    assert not (found := re.search(OTHERWISE[asked], text)), text[found.start() - 80 : found.end() + 80]
    if variant == "published":
        assert f"No privacy claim is made: {name}: published is for study" in text
        wrong = isinstance(section["eta"], list) and not declared.perturbed_dual
        assert ("a wrong point" in text) is wrong
        assert "no promise" in text
    else:
        assert "Privacy claim upheld: " in text
    if asked == "minimiser":
        output = section.get("perturb") == "primal" or privacy.get("mechanism") == "gaussian"
        assert "Each answer is a private minimiser" in text
        assert ("output perturbation" in text) is output
        assert ("objective perturbation" in text) is not output
        assert ("that message uses no data" in text) is bool(claim_of(declared).note(declared))
        assert "nothing is clipped" in text
    elif asked == "data":
        assert "Each load was perturbed once" in text
    elif asked == "statistic":
        assert "Each node has answered once" in text
        assert "its part of the sum is shortened to 1" in text
    elif zones:
        assert ("fresh noisy copy of the loads" in text) is (privacy.get("at") != "gradient")
    else:
        assert "Each answer is a gradient" in text
        assert ("clipped to 1" in text) is ("replace-one-record" in privacy["adjacency"])
    if pattern == "neighbours" and variant == "guarded":
        assert "in which of them every node answers" in text
