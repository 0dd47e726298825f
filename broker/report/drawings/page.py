"""The HTML of a report: a few building blocks that escape what they are given, and the style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2733; --soft: #566473; --line: #d8dee4; --well: #f6f8fa;
  --good: #1f7a4d; --bad: #b3261e; --warn: #9a6200;
  --agreed: #1f5f99; --noise: #6b46a8; --apart: #b04a12; --diverged: #a3155f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e3e8ed; --soft: #9fadba; --line: #36414d;
  --well: #1d242c; --good: #5cc38f; --bad: #ff8a80; --warn: #e0b052;
  --agreed: #7fb8ee; --noise: #bda2f0; --apart: #f2a071; --diverged: #f08cc0; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1040px; padding: 40px 40px 72px; color: var(--ink); background: var(--paper);
  font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }
h1 { font-size: 30px; line-height: 1.2; margin: 2px 0 10px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 44px 0 14px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 22px 0 6px; }
p { margin: 0 0 10px; max-width: 78ch; }
.kind { font-size: 12px; letter-spacing: 0.09em; text-transform: uppercase; color: var(--soft); margin: 0; }
.note { margin: 18px 0 0; }
.verdict { font-size: 17px; }
.banner { display: flex; gap: 22px; align-items: baseline; border: 1px solid var(--line); border-left: 6px solid;
  border-radius: 3px; padding: 16px 20px 8px; margin-top: 22px; }
.banner .word { font-weight: 700; font-size: 17px; white-space: nowrap; margin: 0; }
.banner .headline { font-weight: 600; }
.banner p { max-width: none; }
.banner { border-left-color: var(--of); } .banner .word { color: var(--of); width: 132px; flex: none; }
.banner { background: var(--paper); background: color-mix(in srgb, var(--of) 6%, var(--paper)); }
.upheld { --of: var(--good); } .not-upheld { --of: var(--bad); } .not-private { --of: var(--warn); }
.agreed, .solved { --of: var(--agreed); } .noise-limited { --of: var(--noise); } .not-converged { --of: var(--apart); }
.diverged { --of: var(--diverged); } .banner + .banner { margin-top: 12px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); gap: 14px 26px; margin: 0; }
dl div { border-left: 2px solid var(--line); padding-left: 12px; min-width: 0; }
dt { font-size: 12.5px; color: var(--soft); }
dd { margin: 0; font-size: 16px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
dl.wide { display: block; } dl.wide div { display: grid; grid-template-columns: 230px 1fr; gap: 18px; border: 0;
  border-bottom: 1px solid var(--line); padding: 7px 0; }
dl.wide dt { font-size: 14px; } dl.wide dd { font-size: 15px; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figure h3 { margin: 0 0 4px; }
figcaption { font-size: 13px; color: var(--soft); margin-top: 4px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr)); gap: 30px 34px; }
svg { display: block; width: 100%; height: auto; background: #fff; border-radius: 3px; }
svg.chart { stroke-linejoin: round; stroke-linecap: butt; }  /* dark on white, turned over in the dark, hues kept */
@media (prefers-color-scheme: dark) { svg.chart { filter: invert(0.92) hue-rotate(180deg); } }
svg text { font-family: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif !important; }
.keys { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 13.5px; margin: 0 0 8px; max-width: none; }
.keys i { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin-right: 7px; }
.scroll { overflow-x: auto; margin: 14px 0 22px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 13px; color: var(--soft); padding-bottom: 6px; max-width: min(100%, 92vw); }
th, td { text-align: right; padding: 5px 12px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; border-bottom: 1.5px solid var(--ink); }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
tr:has(+ tr td:first-child:empty) td { border-bottom-color: transparent; }
thead { display: table-header-group; } tr { break-inside: avoid; }
.charts + details { margin-top: 22px; }
summary { cursor: pointer; color: var(--soft); }
pre { background: var(--well); border: 1px solid var(--line); border-radius: 3px; padding: 14px 16px; font-size: 12.5px;
  line-height: 1.45; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
footer { margin-top: 44px; font-size: 12.5px; color: var(--soft); }
@media (max-width: 640px) { body { padding: 24px 18px 48px; } .banner, dl.wide div { display: block; } }
@media print { :root { color-scheme: light; } @page { margin: 16mm 14mm; } body { padding: 0; max-width: none;
  font-size: 10.5pt; }
  .charts { grid-template-columns: 1fr 1fr; gap: 14px 20px; }
  h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  .banner, dl div { break-inside: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def document(title: str, body: str, style: str = "", images: bool = False) -> str:
    """A whole page around `body` (HTML), with rules of its own. Its content policy forbids scripts and any request.

    images: it has images within itself.
    """
    within = "; img-src data:" if images else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'"
        f'{within}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n{body}\n"
        "<footer>Made by hushgrid from the run directory alone. This page loads nothing and runs no script.</footer>\n"
        "</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """A titled part of the page; body is HTML."""
    return f"<section><h2>{escape(title)}</h2>\n{body}</section>"


def paragraphs(texts: Iterable[str]) -> str:
    """Plain texts as paragraphs."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def facts(pairs: Iterable[tuple[str, str]], wide: bool = False) -> str:
    """Name and value pairs, plain text; wide: one below the other, for sentences."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="wide">{items}</dl>' if wide else f"<dl>{items}</dl>"


def figure(title: str, drawing: str, caption: str) -> str:
    """A drawing (HTML) under its title, above its caption."""
    return f"<figure><h3>{escape(title)}</h3>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of plain texts; the first column names the row."""
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
