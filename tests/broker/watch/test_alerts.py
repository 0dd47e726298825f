"""The alert rules and the dashboard of deploy/ ask for figures that there are."""

import json
import re

import yaml

from hushgrid.broker.watch.metrics import text
from hushgrid.broker.watch.model import Model
from hushgrid.node import status, views
from hushgrid.node.status import Interval
from hushgrid.node.transport.link import Message
from tests.support.daemons.simulated_fleet import answer_view, birth
from tests.support.paths import DEPLOY
from tests.support.status import PLAIN

RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]


def figures():
    """The names of all that `watch` exports of a fleet that has said everything."""
    model = Model("demo", "mqtt://broker")
    full = {"epsilon": 2.0, "lifetime": 9.0, "epsilon_left": 1.0, "epsilon_left_life": 8.0, "window_s": 60.0}
    more = {"certificate_days": 9, "interval": Interval(number=1, outcome="answer", at=PLAIN.at, counts={"answer": 1})}
    report = type(PLAIN)(**{f: getattr(PLAIN, f) for f in PLAIN.__struct_fields__} | full | more)
    model.take(Message(model.topics.status("z1"), status.encode(report), False))
    model.take(Message(model.topics.state("z1"), birth(), False))
    model.take(Message(model.topics.answer(), views.encode(answer_view()), False))
    return set(re.findall(r"^(hushgrid_\w+)\{", text(model.facts()), flags=re.M))


def test_every_figure_that_is_asked_for_is_exported():
    expressions = [rule["expr"] for rule in RULES] + [t["expr"] for panel in PANELS for t in panel["targets"]]
    asked = {name for expression in expressions for name in re.findall(r"hushgrid_\w+", expression)}
    assert len(asked) > 8
    assert asked - figures() == set()


def test_there_is_a_rule_for_what_an_operator_must_not_miss():
    assert {rule["alert"].removeprefix("Hushgrid") for rule in RULES} >= {
        "NodeGone", "BudgetLow", "CertificateEnds", "IntervalsMissed", "SetpointsOld", "BrokerAway"
    }  # fmt: skip
    assert next(rule for rule in RULES if rule["alert"] == "HushgridNodeGone")["for"] == "10m"
