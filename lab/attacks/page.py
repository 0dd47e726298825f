"""attack.html: what was recovered from one run, in words, tables and pictures. It loads nothing and runs no script."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape

from hushgrid.broker.report.drawings.page import document, facts, figure, paragraphs, section, table
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.attacks.base import Attacked
from hushgrid.lab.inversion.recovered import CONSISTENT

STYLE = "\nimg.rows { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 3px; }\n"
NODES = 40  #: rows of a table, at most


def page(attacked: Attacked, pictures: Mapping[str, bytes], summary: DocumentView) -> str:
    """The page. pictures: PNG files by name. summary: what `--json` prints."""
    name = str(summary["name"])
    sentences = "</p><p>".join(escape(text) for text in verdict(summary))
    body = [
        f'<header><p class="kind">hushgrid · attack on a run</p><h1>{escape(name)}</h1>'
        f'<p class="verdict">{sentences}</p></header>',
        section("The run", facts(_about(summary))),
        section("How", paragraphs(attacked.recovered.notes)) if attacked.recovered.notes else "",
        section("What was recovered", _nodes(summary)) if summary["gradients"] or summary["rows"] else "",
        section("Rows as images", _pictures(attacked, pictures)) if pictures else "",
        section("Against the truth", _scores(summary)) if summary["scores"] else "",
    ]
    return document(f"{name} – hushgrid attack", "\n".join(body), STYLE, images=True)


def verdict(summary: DocumentView) -> list[str]:
    """What was found, in sentences that are true of this run."""
    gradients, rows = summary["gradients"], summary["rows"]
    if summary["loads"]:
        return _loads(summary)
    count, complete = (sum(g[key] for g in gradients.values()) for key in ("count", "complete"))
    noisy = bool(gradients) and all(g["what"] == "noisy answer" for g in gradients.values())
    what = "noisy answers of the gates" if noisy else "gradients"
    extent = "in every coordinate" if complete == count else f"{complete:,} of them in every coordinate"
    read = f"{summary['messages']:,} messages of {summary['algorithm']} (variant {summary['variant']})"
    sentences = [
        f"An eavesdropper on every edge reads {count:,} {what} of {len(gradients)} nodes off {read}, {extent}."
    ]
    if not count:
        sentences = [f"An eavesdropper on every edge reads no gradient off {read}."]
    if rows:
        sentences.append(_behind(list(rows.values())))
    if noisy:
        sentences.append(
            "The attack ends with the gates' noisy answers: this is all that the nodes have told about their data."
        )
        if any(r["count"] for r in rows.values()):
            sentences.append(
                "Where no answer shows a row by itself, the guess is made from the mean of a node's answers, which "
                "has less noise. That it is no find does not say that it is no better than chance: how much better, "
                "epsilon bounds."
            )
        sentences += _answers(summary["answers"])
    elif summary["sums"]:
        sentences.append(_masked(summary))
    elif summary["variant"] == "guarded":
        sentences.append(
            "What travels is a function of the gates' noisy answers, and the attack does not get behind them."
        )
    return sentences


def _masked(summary: DocumentView) -> str:
    """Of sums over devices."""
    decoded = (
        f"{summary['sums']:,} sums of the gates' noisy answers over the devices are decoded, as the coordinator does"
    )
    if of_sites := summary["sums_at_site"]:
        decoded = (
            f"{summary['sums']:,} sums of the gates' noisy answers are decoded, {summary['sums'] - of_sites:,} over "
            f"the whole fleet, as its coordinator does, and {of_sites:,} over a site's devices, as that site's own does"
        )
    if alone := summary["alone"]:
        return (
            f"{decoded}. A noisy answer by itself is found of {', '.join(alone)}: the others sent the same under "
            "two sets."
        )
    return f"{decoded}; they show no device's answer by itself, and the attack does not get behind them."


def _answers(answers: DocumentView) -> list[str]:
    """Of the noise on the answers."""
    if not answers:
        return []
    every = answers.values()
    off = max(node["off_grid"] for node in every)
    sentences = [
        "All answers are on the public grid: no digit of them tells more than their value."
        if not off
        else f"Up to {off:.0%} of a node's answers are NOT on the public grid: noise in floating point tells values "
        "apart."
    ]
    if all(node["noise_ratio"] is not None for node in every):
        low, high = (f(node["noise_ratio"] for node in every) for f in (min, max))
        twice = max(node["repeats"] for node in every)
        sentences.append(
            f"Their noise is {low:.2f} to {high:.2f} times the claimed one"
            + ("." if not twice else f", and up to {twice:.0%} of a node's answers have noise that an EARLIER one had.")
        )
    return sentences


def _behind(rows: list[DocumentView]) -> str:
    """What was found of the rows."""
    sure = [r for r in rows if r["consistent"]]
    tried = [r["residual"] for r in rows if not r["consistent"] and r["residual"] is not None]
    if sure:
        number, most = sum(r["count"] for r in sure), max(r["residual"] for r in sure)
        who = "all nodes" if len(sure) == len(rows) else f"{len(sure)} of {len(rows)} nodes"
        sentence = f"{number:,} rows, those of {who}, are recovered: they explain what was heard to {most:.1g}."
        return sentence + (
            f" The guesses for the others leave {min(tried):.2g} of it or more: they are no finds." if tried else ""
        )
    if tried:
        return (
            f"No row is recovered: the best guess leaves {min(tried):.2g} of what was heard unexplained, "
            "where 1e-6 would be a find."
        )
    return "No row is recovered: what was heard does not determine one."


def _loads(summary: DocumentView) -> list[str]:
    """Of zones."""
    loads, sentences = summary["loads"], []
    consistent = [zone for zone in loads.values() if zone["consistent"]]
    if consistent:
        count, worst = sum(zone["count"] for zone in consistent), max(zone["residual"] for zone in consistent)
        copy = all(zone["what"] == "noisy answer" for zone in consistent)
        sentences.append(
            f"{count:,} {'entries of the noisy copies' if copy else 'loads'} of {len(consistent)} of {len(loads)} "
            f"zones are recovered from {summary['messages']:,} messages: they explain what was heard to {worst:.1g}."
        )
        if copy:
            sentences.append("The attack ends with the gates' noisy answers: of the loads themselves it recovers none.")
    vague = [zone for zone in loads.values() if not zone["consistent"] and zone["residual"] <= CONSISTENT]
    if vague:
        sentences.append(
            f"Of {len(vague)} zones no load is recovered: loads that lie far apart explain the little that was heard."
        )
    if len(consistent) + len(vague) < len(loads):
        least = min(zone["residual"] for zone in loads.values() if zone["residual"] > CONSISTENT)
        sentences.append(
            f"Of {len(loads) - len(consistent) - len(vague)} zones no load is recovered: the best guess leaves "
            f"{least:.1g} of what was heard, where 1e-6 would be a find."
        )
    return sentences


def _about(summary: DocumentView) -> list[tuple[str, str]]:
    return [
        ("algorithm", str(summary["algorithm"])),
        ("variant", str(summary["variant"])),
        ("privacy upheld", str(summary["upheld"]).lower() if isinstance(summary["upheld"], bool) else
         str(summary["upheld"] or "no claim")),
        ("messages read", f"{summary['messages']:,}"),
        ("states recovered", ", ".join(summary["states"]) or "none"),
    ]  # fmt: skip


def _nodes(summary: DocumentView) -> str:
    lines = []
    nodes = list(dict.fromkeys((*summary["gradients"], *summary["rows"])))
    for node in nodes[:NODES]:
        g = summary["gradients"].get(node) or {"what": "none", "count": 0, "complete": 0}
        r = summary["rows"].get(node) or {"count": 0, "method": "none", "residual": None, "consistent": False}
        residual = "" if r["residual"] is None else f"{r['residual']:.2g}"
        yes = "yes" if r["consistent"] else "no"
        lines.append(
            (node, g["what"], str(g["count"]), str(g["complete"]), str(r["count"]), r["method"], residual, yes)
        )
    columns = ("node", "what", "heard", "complete", "rows", "method", "residual", "consistent")
    more = len(nodes) - len(lines)
    caption = f"and {more} nodes more, in recovered.npz" if more > 0 else "all of it is in recovered.npz"
    return table(columns, lines, caption)


def _pictures(attacked: Attacked, pictures: Mapping[str, bytes]) -> str:
    drawn = []
    for name, content in pictures.items():
        node = name.removesuffix(".png")
        beside, rows = attacked.beside(node), attacked.rows[node]
        label = "labels " + ", ".join(f"{b:g}" for b in (rows.labels if beside is None else beside.labels)[:12])
        what = "recovered" if beside is None else "original above, recovered below"
        sure = "consistent with what was heard" if rows.consistent else "not consistent with what was heard: no find"
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        image = f'<img class="rows" alt="{escape(what)} of {escape(node)}" src="{source}">'
        drawn.append(figure(node, image, f"{what}; {label}; {sure}"))
    return f'<div class="charts">{"".join(drawn)}</div>'


def _scores(summary: DocumentView) -> str:
    scores = summary["scores"]
    units = {
        "cosine": ("cosine, median", ".3f"), "psnr": ("PSNR, median, dB", ".1f"),
        "psnr_worst": ("PSNR, worst, dB", ".1f"), "ssim": ("SSIM, median", ".3f"),
        "labels": ("labels right", ".0%"), "gradient_error": ("relative error of a gradient, median", ".2g"),
    }  # fmt: skip
    pairs = [(name, format(scores[key], form)) for key, (name, form) in units.items() if scores[key] is not None]
    note = (
        "The truth was held aside and read for these figures only. The peak of PSNR is the largest entry of a true row."
    )
    return facts(pairs) + f'<p class="note">{escape(note)}</p>'
