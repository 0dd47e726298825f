"""A kernel gives the numbers of its naive twin; where compiled code is kept."""

import re
from pathlib import Path

import numpy as np
import pytest

from hushgrid.kernels import jit
from tests.support.agents.kernel_twins import TABLE, answer, named
from tests.support.paths import ROOT

# --- twins of the kernels that see rows ---


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_kernel_is_its_naive_twin(row):
    np.testing.assert_allclose(answer(row.kernel, row.right), answer(row.twin, row.right), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_kernel_takes_no_wrong_arguments(row):
    with pytest.raises(ValueError, match=r"shape|mismatch"):
        row.kernel(*row.wrong)


@pytest.mark.runs
def test_every_kernel_has_a_row():
    found = set()
    for room in (*(ROOT / "kernels").rglob("*.py"), *(ROOT / "lab").rglob("*.py")):
        names = re.findall(r"^@kernel(?:_or\(\w+\))?\ndef (\w+)", room.read_text(encoding="utf-8"), re.MULTILINE)
        found |= {(room.stem, name) for name in names}
    assert len(found) > 15
    assert found == {(row.kernel.__module__.rsplit(".", 1)[1], named(row)) for row in TABLE}


# --- compiled ---


def test_the_digest_sees_every_edit_and_every_move_of_a_source_file(tmp_path, monkeypatch):
    (tmp_path / "within").mkdir()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    digests = {jit.source_digest()}
    for path, content in (("one.py", "1"), ("within/one.py", "1"), ("within/one.py", "2")):
        (tmp_path / path).write_text(content)
        digests.add(jit.source_digest())
    (tmp_path / "within/one.py").rename(tmp_path / "within/two.py")
    digests.add(jit.source_digest())
    assert len(digests) == 5


def test_systemd_s_cache_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    jit.cache_directory.cache_clear()
    assert jit.cache_directory() == str(tmp_path / "first" / "hushgrid" / f"kernels-{jit.source_digest()}")
    assert list(Path(jit.cache_directory()).iterdir()) == []
    jit.cache_directory.cache_clear()
