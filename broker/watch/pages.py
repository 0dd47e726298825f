"""The pages of `hushgrid watch` as HTML: whole without a script, from the same views that a script keeps up to date.

Every text that comes from outside is escaped here, and set as text by the scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from hushgrid.broker.report.drawings.numbers import fixed, number
from hushgrid.broker.report.drawings.page import facts, table
from hushgrid.broker.watch.display import COLUMNS, FILTERS, day
from hushgrid.kernels.types import Document
from hushgrid.node.schema.durations import in_words


class Shown(NamedTuple):
    """Which pages there are."""

    fleet: bool
    device: bool


def shell(title: str, name: str, script: str, body: str, shown: Shown) -> str:
    """A page around `body` (HTML); `name`: what it is of."""
    links = [("/", "Fleet"), ("/run", "Run")] * shown.fleet + [("/device", "Device")] * shown.device
    here = {"fleet": "/", "run": "/run", "device": "/device"}[script]
    nav = "".join(
        f'<a href="{to}"{" aria-current=page" if to == here else ""}>{escape(label)}</a>' for to, label in links
    )
    charts = '<link rel="stylesheet" href="/static/uplot.min.css">' if script == "run" else ""
    library = '<script src="/static/uplot.min.js" defer></script>' if script == "run" else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)} – {escape(title)} – hushgrid watch</title>\n"
        f'<link rel="icon" href="/static/icon.svg">{charts}<link rel="stylesheet" href="/static/watch.css">\n'
        f'{library}<script type="module" src="/static/{script}.js"></script>\n</head>\n<body>\n'
        f'<header><div><p class="kind">hushgrid · {escape(title)}</p><h1>{escape(name)}</h1></div>'
        f"<nav>{nav}</nav></header>\n"
        '<p id="old" role="alert" hidden></p>\n'
        f"<main>{body}</main>\n</body>\n</html>\n"
    )


def fleet(view: Document, shown: Shown) -> str:
    """A row a node, filters, and the last runs."""
    rows = view["rows"]
    counts = {flag: sum(flag in row["flags"] for row in rows) for flag in FILTERS}
    tiles = "".join(
        f'<button type="button" data-filter="{flag}" aria-pressed="false"><b>{count}</b> <span>{escape(label)}</span>'
        "</button>"
        for flag, label, count in (
            ("", "All nodes", len(rows)),
            *((flag, label, counts[flag]) for flag, label in FILTERS.items()),
        )
    )
    head = "".join(f'<th scope="col" class="{key}">{escape(label)}</th>' for key, label in COLUMNS.items())
    extra = '<th scope="col" class="strip">Last 50 runs</th><th scope="col" class="spoke">Last heard</th>'
    body = "\n".join(_row(row) for row in rows)
    return shell(
        "fleet",
        view["fleet"],
        "fleet",
        f"{_broker(view['broker'])}"
        f'<section id="tiles" aria-label="Filters">{tiles}</section>'
        f'<section id="runs"><h2>The last 50 runs</h2><div id="past">{_past(view["runs"])}</div>'
        '<p class="keys" id="key"></p></section>'
        '<section><h2 id="count">Nodes</h2><input id="find" type="search" placeholder="Find a node" '
        'aria-label="Find a node" autocomplete="off" hidden>'
        f'<table id="nodes"><thead><tr>{head}{extra}</tr></thead><tbody>\n{body}\n</tbody></table></section>',
        shown,
    )


def _row(row: Document) -> str:
    cells = "".join(f'<td class="{key}">{escape(row["cells"][key])}</td>' for key in COLUMNS)
    return f'<tr class="{" ".join(row["flags"])}">{cells}<td class="strip"></td><td class="spoke"></td></tr>'


def _broker(broker: Document) -> str:
    odd = f" · unreadable messages: {broker['unreadable']}" if broker["unreadable"] else ""
    if broker["strangers"]:
        odd += f" · somebody publishes as {', '.join(broker['strangers'])}: no name of a node"
    if broker["connected"]:
        return f'<p id="broker">{escape("Connected to " + broker["url"] + odd)}</p>'
    return f'<p id="broker" class="away">{escape("Away: " + broker["url"] + ": " + broker["why"] + odd)}</p>'


def _past(runs: Iterable[Document]) -> str:
    """The last runs in words, for whoever has no script."""
    words = [f"{day(run['at'])} {run['outcome']}" for run in runs]
    return f"<p>{escape(', '.join(words[-5:]))}</p>" if words else "<p>None yet.</p>"


def run(view: Document, shown: Shown) -> str:
    """The run under way and the last answer."""
    answer = view["answer"] or {}
    tables = ""
    if answer.get("table"):
        rows = [[_cell(cell) for cell in row] for row in answer["table"]]
        tables = table([_cell(cell) for cell in answer["columns"]], rows, "The last answer.")
    return shell(
        "run",
        view["fleet"],
        "run",
        f"{_broker(view['broker'])}"
        f'<section><h2>The run</h2><dl id="run">{facts(run_facts(view["run"]))[4:-5]}</dl></section>'
        '<section class="charts"><figure><h3>Consensus residual</h3><div id="residual"></div>'
        '<figcaption id="residual-note"></figcaption></figure>'
        '<figure><h3 id="graph-title">Graph</h3><div id="graph"></div><figcaption id="graph-note"></figcaption>'
        "</figure></section>"
        f'<section><h2>The last answer</h2><dl id="answer">{facts(answer_facts(view["answer"]))[4:-5]}</dl>'
        '<div class="charts"><figure id="prices-figure" hidden><h3>Prices by bus</h3><div id="prices"></div>'
        '<figcaption id="prices-note"></figcaption></figure>'
        f'<div id="table">{tables}</div></div></section>',
        shown,
    )


def _cell(value: object) -> str:
    return "" if value is None else number(value, 6)


def run_facts(view: Document | None) -> list[tuple[str, str]]:
    """The run in pairs of a name and a value."""
    if view is None:
        return [("State", "no run has been seen yet")]
    rounds = f"{view['round']} of {view['rounds']}"
    asked = ", ".join(view["asked"]) + ("…" if view["asked_in_all"] > len(view["asked"]) else "")
    pairs = [
        ("State", view["state"]),
        ("Algorithm", f"{view['algorithm']} ({view['pattern']})"),
        ("Round", rounds),
        ("Activation", "" if view["activation"] is None else number(view["activation"])),
        ("Consensus residual", "" if view["residual"] is None else number(view["residual"])),
        ("Token at", view["holder"] or ""),
        ("Must send now", f"{asked} ({view['asked_in_all']})" if view["asked_in_all"] > 1 else asked),
        ("Since", day(view["since"])),
        ("Goes on without", ", ".join(view["lost"])),
        ("Nodes", str(view["nodes"])),
        ("Run", view["run"][:8]),
    ]
    return [(name, value) for name, value in pairs if value]


def answer_facts(view: Document | None) -> list[tuple[str, str]]:
    """The last answer in pairs of a name and a value."""
    if view is None:
        return [("Answer", "none has been seen yet")]

    def figure(key: str, unit: str = "") -> str:
        return "" if view[key] is None else number(float(view[key]), 4) + unit

    gap = view["gap"]
    pairs = [
        ("Outcome", view["outcome"] + (f", interval {view['number']}" if view["number"] else "")),
        ("Verdict", view["verdict"] or ""),
        ("Ended", day(view["at"])),
        ("Good until", day(view["valid_until"])),
        ("Served", figure("served_mw", " MW")),
        ("Load shed", figure("unserved_mw", " MW")),
        ("Cost", "" if view["cost"] is None else f"{fixed(float(view['cost']), 0)} $/h"),
        ("Above a proven bound", "" if gap is None else f"{number(100 * gap)} %"),
        ("AC power flow", view["ac"] or ""),
        ("Largest AC violation", figure("ac_violation", " p.u.")),
        ("Error on held-out rows", figure("test_error")),
        ("Rounds", str(view["rounds"]) if view["rounds"] else ""),
        ("Residual at the end", figure("residual")),
    ]
    return [(name, value) for name, value in pairs if value]


def device(view: Document, shown: Shown) -> str:
    """What the device of this machine was asked, what that cost, what is left, and what it does."""
    return shell("device", view["node"], "device", f'<div id="device">{device_body(view)}</div>', shown)


def device_body(view: Document) -> str:
    """The parts of the page, as HTML."""
    problem = f'<p class="away">{escape(view["problem"])}</p>' if view["problem"] else ""
    budgets = "".join(map(_budget, view["totals"])) or "<p>Nothing is spent.</p>"
    runs = [
        (
            day(run["started"]),
            run["name"],
            run["algorithm"] or "–",
            number(run["answers"]),
            _spent(run),
            run["status"],
            run["run"],
        )
        for run in view["runs"]
    ]
    asked = (
        table(
            ("Began", "Run", "By", "Answers", "Cost, epsilon", "Ended", "Id"),
            runs,
            f"Asked by the coordinator of fleet {view['fleet']}; the last 50 runs.",
        )
        if runs
        else "<p>Nobody yet.</p>"
    )
    consent = "".join(f"<li>{escape(line)}</li>" for line in view["consent"])
    return (
        f"{problem}<section><h2>What is left</h2>{budgets}</section>"
        f"<section><h2>Who asked what, and what it cost</h2>{asked}</section>"
        f"<section><h2>Set-points in force</h2>{_setpoints(view)}</section>"
        f'<section><h2>What its owner consents to</h2><ul class="consent">{consent}</ul></section>'
        f"<section><h2>Files</h2>{facts(_files(view))}</section>"
    )


def _spent(run: Document) -> str:
    if run["delta"] is None:
        return "everything: no privacy"
    epsilon = "unbounded" if run["epsilon"] is None else number(float(run["epsilon"]))
    return epsilon + (f", delta {number(run['delta'])}" if run["delta"] else "")


def _budget(total: Document) -> str:
    """One budget: its bars and until when it lasts."""
    window, limit = total["window"], total["budget"]
    rows = []
    if limit is None:
        rows.append(("Spent", _spent(total), None))
    elif window:
        renews = window["renews_in"]
        more = "" if renews is None else f"; the next comes back in {in_words(renews, up=True)} of running time"
        rows.append(
            (f"In any {in_words(window['seconds'])}", _rest(window["left"], limit) + more, window["left"] / limit)
        )
        if window["lifetime"]:
            left, life = window["lifetime_left"], window["lifetime"]
            rows.append(("Over its life", _rest(left, life) + _lasts(left, total, window), left / life))
    else:
        rows.append(("Over its life", _rest(total["left"], limit), total["left"] / limit))
    name = f"<h3>{escape(total['adjacency'] or 'under every adjacency')}</h3>"
    return name + "".join(_bar(*row) for row in rows)


def _lasts(left: float, total: Document, window: Document) -> str:
    """For how long the life's budget lasts at the most that the window lets pass; "" if nothing is spent."""
    if not total["budget"] or left <= 0:
        return ""
    return f"; at the full pace of its window it lasts {in_words(left / total['budget'] * window['seconds'])} more"


def _rest(left: float, limit: float) -> str:
    return f"{number(float(left))} of epsilon {number(float(limit))} left"


def _bar(name: str, text: str, share: float | None) -> str:
    """A bar as an image of its own, as styles within the page are forbidden."""
    drawn = ""
    if share is not None:
        share = min(max(share, 0.0), 1.0)
        kind = "low" if share < 0.2 else "fair"
        drawn = (
            f'<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" '
            f'aria-label="{100 * share:.0f} % left"><rect class="{kind}" width="{100 * share:.1f}" height="4"/></svg>'
        )
    return f'<div class="budget"><p><b>{escape(name)}</b> {escape(text)}</p>{drawn}</div>'


def _setpoints(view: Document) -> str:
    points = view["setpoints"]
    if points is None:
        return "<p>None: no run has had an answer that this device has taken.</p>"
    until = f", good until {day(points['valid_until'])}" if points["valid_until"] else ""
    reason = f": {points['reason']}" if points["reason"] else ""
    line = f"Of {day(points['time'])} UTC{until}. State: {points['state']}{reason}."
    age = f'<p>{escape(line)} <span class="age" data-at="{points["at"]}"></span></p>'
    units = points["units"]
    rows = [
        (where, *(number(round(row[unit], 6), 4) if unit in row else "" for unit in units))
        for where, row in points["places"].items()
    ]
    cut = f" The first {len(rows)} of {points['many']}." if points["many"] > len(rows) else ""
    words = f"A bus has the sum of its generators and its voltage.{cut}"
    return age + (table(("Where", *units), rows, words) if rows else "")


def _files(view: Document) -> list[tuple[str, str]]:
    ledger = view["ledger"]
    pairs = [("Device's file", view["file"]), ("Fleet", view["fleet"])]
    if ledger:
        pairs += [
            ("Ledger", ledger["ledger"][:8]),
            ("Sessions", number(ledger["session"])),
            ("Spends", number(ledger["spends"])),
            ("Data version", number(ledger["data_version"])),
        ]
    return pairs
