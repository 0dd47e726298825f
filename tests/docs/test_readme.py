"""README.md: its Python prints what it says, its table has every algorithm, its picture is there."""

import re

import numpy as np
import pytest

from hushgrid.kernels.algorithms.registry import ALGORITHMS
from tests.support.paths import ROOT

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_python_prints_what_its_comments_say(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.M | re.S)
    exec(compile(block, "README.md", "exec"), {})
    said = [line.split("  # ")[1] for line in block.splitlines() if line.startswith("print")]
    printed = capsys.readouterr().out.splitlines()
    assert [comment.split(": ")[0] for comment in said] == printed


def test_its_table_has_every_algorithm():
    table = PAGE.split("<!-- algorithms -->\n")[1].split("<!-- /algorithms -->")[0]
    named = re.findall(r"`([\w-]+)`", "".join(line.split("|")[1] for line in table.splitlines()))
    assert sorted(named) == sorted(ALGORITHMS)


def test_its_picture_is_small_and_light():
    file = ROOT / "docs/images/report.png"
    assert 'src="docs/images/report.png"' in PAGE
    assert file.stat().st_size < 300_000
    picture = pytest.importorskip("matplotlib.image").imread(file)
    assert np.median(picture) > 0.9
