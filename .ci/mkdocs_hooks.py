"""What the site needs beyond docs/: folders in `nav`, the pages at the root of the repository, links to files of the
code.

A page of docs/ is written to be read in the repository too. There a link may leave docs/; on the site such a link leads
to the page that this file adds, or, if it is a file of the code, is its path and no link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = [entry for item in config.nav or [] if (entry := _expanded(item))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    script = Path(__file__).with_name("iframe-worker.js").read_text(encoding="utf-8")
    files.append(File.generated(config, "assets/iframe-worker.js", content=script))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """With every link leading to a page or a file of the site. Fenced blocks stay as they are."""
    names = {page_: source for source, page_ in PAGES.items()}
    source = names.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def led(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if re.match("https?:|mailto:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        on_site = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
        if not on_site:
            return text if text.startswith("`") else f"{text} (`{path}`)"
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"{image}[{text}]({posixpath.relpath(on_site, here)}{anchor or ''})"

    blocks = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.M | re.S)
    return "".join(block if k % 2 else LINK.sub(led, block) for k, block in enumerate(blocks))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Raises PluginError if a page would fetch anything from the network."""
    if fetched := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri}: found {fetched[0][:120]}, expected nothing from the network")
    return output


def _expanded(item: Any) -> Any:
    """An entry of `nav` with a folder's pages in the place of "folder/"; None if there is no such folder yet."""
    if isinstance(item, str):
        if not item.endswith("/"):
            return item
        pages = sorted((ROOT / "docs" / item).glob("*.md"), key=lambda p: (p.name != "README.md", p.name))
        return {item.rstrip("/").title(): [f"{item}{p.name}" for p in pages]} if pages else None
    ((title, below),) = item.items()
    if isinstance(below, str):
        found = _expanded(below)
        return {title: next(iter(found.values()))} if isinstance(found, dict) else found and {title: found}
    kept = [entry for part in below if (entry := _expanded(part))]
    return {title: kept} if kept else None
