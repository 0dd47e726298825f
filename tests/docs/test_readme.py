"""README.md: one screen; its Python and its picture are there and true."""

import re

import numpy as np
import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_one_screen_with_the_picture_first():
    assert len(PAGE.encode()) < 7000
    head = PAGE.split("## ")[0]
    assert head.index("<img") < head.index("make demo") < PAGE.index("`make test`")


def test_its_picture_is_small_and_light():
    file = ROOT / "docs/images/report.png"
    assert 'src="docs/images/report.png"' in PAGE
    assert file.stat().st_size < 300_000
    picture = pytest.importorskip("matplotlib.image").imread(file)
    assert np.median(picture) > 0.9


def test_it_has_three_doors_with_a_command_and_a_result_each():
    doors = PAGE.split("## Three doors")[1].split("\n## ")[0]
    assert re.findall(r"^\*\*\[.*?\]\(docs/(\w+)\.md\)", doors, flags=re.M) == ["grid", "sensors", "research"]
    assert len(re.findall(r"^    \$ hushgrid .*  # \S", doors, flags=re.M)) == 3


def test_the_python_of_the_research_page_prints_what_its_comments_say(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/research.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    exec(compile(block, "research.md", "exec"), {})
    comments = [line.split("  # ")[1] for line in block.splitlines() if line.startswith("print")]
    printed = capsys.readouterr().out.splitlines()
    assert [comment.split(": ")[0] for comment in comments] == printed
