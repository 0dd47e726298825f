"""The pages' English: sentences of at most 35 words, none of the turns below, and a count of words that stays small.

Prose only: fenced blocks, indented code, quotations of the program, tables, formulas in code spans,
headings and link targets are left out.
"""

import argparse
import re
from collections.abc import Iterator

import pytest

from hushgrid.cli.main import COMMANDS, make_parser
from tests.support.paths import ROOT

LONGEST = 35  #: words of a sentence
MOST = 46_500  #: words of all pages' prose
WITH_TABLES = 78_000  #: the same with tables, code and numbers

PAPERS, COVERED = "docs/papers/README.md", "## What of the papers is here"
PAGES = sorted(
    page
    for pattern in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md")
    for page in (path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
    if page not in ("docs/imports.md", "docs/history.md") and not page.startswith("docs/reference/")
)

#: Turn of phrase: what to write instead.
TURNS = {
    r"\b(is|are|was|were) none of\b": "say what it is",
    r"\bnone of (them|it|these) (is|are)\b": "no ... is",
    r"^(Beside|Below|Above|Behind|Under|With) (it|them|that|these|this) (stand|lie|run|come)s?\b": "subject first",
    r"^(On|In|At) (stdout|stderr|the journal|its place|their place) (stand|lie)s?\b": "subject first",
    r"^(Told|Shown|Given|Kept|Asked|Found) (is|are|was|were)\b": "subject first",
    r"\b(who|whoever) (wants|needs|likes) (it|that|them|more|less)\b": "if you want ...",
    r"\bleft to (who|whoever)\b": "do what suits your use",
    r"(?<!there )\bis none\b": "is not one",
    r"\bthe same bits\b": "bit-identical",
    r"\bnoise by the point\b": "pointwise sensitivity",
    r"\b(spilled|spills)\b": "curtailed",
    r"\b(load|loads|MW|MVAr) (that )?(is|are)? ?not served\b": "load shed",
    r"\bwork(s|ing)? together with\b": "collude",
    r"\bas ever\b": "leave it out",
    r"\bis worth more than all\b": "say what it covers",
    r"\ball the same\b": "even so, or leave it out",
    r"\bbuys? nothing\b": "say what it costs and what it gives",
    r"\bhas nothing to do\b": "say what it does",
    r"(?<!\")\bbatons?\b": "token",
    r"\b(stand|stands|stood) (beside|behind|between|at|in|on)\b": "is, has, shows",
    r"\b(go|goes|gone|going) on with\b": "continue",
    r"\bmade-up\b": "synthetic",
    r"\bdear(er|est)\b": "expensive",
    r"\bby the readings\b": "name the source",
}

ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|p\.u|et al|cf|vs|(?<![\w/])[A-Z])\.(?=\s)")


def paragraphs(text: str) -> Iterator[str]:
    """The prose of a page in Markdown: paragraphs and list items, each on one line, code spans as one word."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|</?[a-z]+( [^>]*)?>", "", text, flags=re.S)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = re.match(r"\s*([-*]|\d+\.) (.*)", line)
        ends = not line.strip() or line.startswith(("#", "|", ">", "    ")) or item
        if ends and block:
            yield " ".join(block)
            block = []
        if item:
            block = [item[2]]
        elif block or not ends:
            block.append(line.strip())


def sentences(paragraph: str) -> list[str]:
    """Split at a stop, a question mark or a colon that ends a line of thought."""
    plain = ABBREVIATIONS.sub(r"\1", re.sub(r"\*\*|(?<!\w)\*|\*(?=[ ,.:;)]|$)(?<!\w\*)", "", paragraph))
    return [part for part in re.split(r"(?<=[.!?])[)\"']?\s+", plain) if part]


def faults(paragraph: str) -> list[str]:
    found = []
    for sentence in sentences(paragraph):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > LONGEST:
            found.append(f"{len(words)} words: {sentence}")
        found += [f"{why}: {sentence}" for turn, why in TURNS.items() if re.search(turn, sentence, re.IGNORECASE)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_plain_english(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [fault for paragraph in paragraphs(text) for fault in faults(paragraph)] == []


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.description or ""
    yield parser.epilog or "" if not parser.epilog or "\n" not in parser.epilog else ""
    for action in parser._actions:
        yield action.help or ""
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help or "" for choice in action._choices_actions)
            for inner in action.choices.values():
                yield from helps(inner)


def test_the_help_texts_are_plain_english():
    texts = [" ".join(text.split()) for text in helps(make_parser(COMMANDS)) if text]
    assert len(texts) > 100
    assert [fault for text in texts for fault in faults(text)] == []


def test_the_pages_stay_short():
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
    texts[PAPERS], _, _ = texts[PAPERS].partition(COVERED)  # what follows is generated
    prose = {page: re.findall(r"\S*[A-Za-z]\S*", " ".join(paragraphs(text))) for page, text in texts.items()}
    longest = sorted((len(words), page) for page, words in prose.items())[-10:]
    assert sum(map(len, prose.values())) <= MOST, longest
    assert sum(len(text.split()) for text in texts.values()) <= WITH_TABLES, longest


def test_a_long_sentence_and_a_banned_turn_are_seen():
    assert faults("One " + "word " * 35 + "more.") != []
    assert faults("The price of a constant is none of an agreement.") != []
    assert faults("Beside it stand `result.json` and a table.") != []
    assert faults("A held value is not negotiated. Its price means nothing.") == []
    assert list(paragraphs("a\nb `c d`\n\n| x | y |\n\n- e\n  f\n    code\n")) == ["a b CODE", "e f"]
