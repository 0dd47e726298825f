"""Compiled or plain, a kernel gives the numbers of its naive twin; compiled code is never older than its sources.

A row of TABLE: a kernel, its twin (numbers one by one, as the formula is written), right arguments, wrong ones.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hushgrid.kernels import jit, losses, prox

ROOT = Path(__file__).parents[1]
M, C = 7, 4
rng = np.random.default_rng(1)
x, t, b = rng.normal(size=(3, M))
T = rng.normal(size=(C, M))
Y = (np.arange(C)[:, None] == rng.integers(0, C, M)).astype(np.float64)
SHORT = np.zeros(2)


class Row(NamedTuple):
    kernel: Callable[..., Any]
    twin: Callable[..., Any]
    right: tuple[Any, ...]
    wrong: tuple[Any, ...]


TABLE = [
    Row(prox.soft, lambda v, t: [math.copysign(max(abs(a) - t, 0), a) for a in v], (x, 0.4), (x, SHORT)),
    Row(prox.shrink, lambda v, t: [a / (1 + t) for a in v], (x, 0.4), (x, SHORT)),
    Row(prox.clip, lambda v, bound: [max(-bound, min(bound, a)) for a in v], (x, 0.5), (x, SHORT)),
    Row(
        prox.elastic_net,
        lambda v, t, l1, l2, bound: [
            max(-bound, min(bound, math.copysign(max(abs(a) - t * l1, 0), a) / (1 + t * l2))) for a in v
        ],
        (x, 3.0, 0.1, 0.2, 0.5),
        (x, 3.0, SHORT, 0.2, 0.5),
    ),
    Row(losses.least_squares_slope, lambda t, b: [t[j] - b[j] for j in range(M)], (t, b), (t, SHORT)),
    Row(
        losses.logistic_slope,
        lambda t, b: [-b[j] / (1 + math.exp(b[j] * t[j])) for j in range(M)],
        (t, np.sign(b)),
        (t, SHORT),
    ),
    Row(
        losses.softmax_slope,
        lambda T, Y: [
            [math.exp(T[c, j]) / sum(math.exp(T[k, j]) for k in range(C)) - Y[c, j] for j in range(M)] for c in range(C)
        ],
        (T, Y),
        (T, Y[:2].copy()),
    ),
    Row(
        losses.public_gradient,
        lambda x, l2, lam, omega: [l2 * a + 2 * lam * omega * a / (1 + omega * a * a) ** 2 for a in x],
        (x, 0.5, 0.1, 2.0),
        (x, SHORT, 0.1, 2.0),
    ),
    Row(
        losses.clip_slope,
        lambda S, size, rows, c: [S[j] * min(1, c / (size[j] * rows[j])) for j in range(M)],
        (b, np.abs(b), np.abs(t), 0.5),
        (b, np.abs(b), SHORT, 0.5),
    ),
    Row(
        losses.clip_slope,
        lambda S, size, rows, c: [[S[k, j] * min(1, c / (size[j] * rows[j])) for j in range(M)] for k in range(C)],
        (T, np.linalg.norm(T, axis=0), np.abs(t), 0.5),
        (T, np.abs(b), SHORT, 0.5),
    ),
]


def named(row: Row) -> str:
    return row.kernel.__name__


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_kernel_is_its_naive_twin(row):
    np.testing.assert_allclose(row.kernel(*row.right), row.twin(*row.right), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_kernel_takes_no_wrong_arguments(row):
    with pytest.raises(ValueError, match=r"shape|mismatch"):
        row.kernel(*row.wrong)


def test_every_kernel_has_a_row():
    found = set()
    for room in (ROOT / "kernels").glob("*.py"):
        names = re.findall(r"^@kernel\ndef (\w+)", room.read_text(encoding="utf-8"), re.MULTILINE)
        found |= {(room.stem, name) for name in names}
    ours = {(room, name) for room, name in found if room in ("prox", "losses")}
    assert ours == {(row.kernel.__module__.rsplit(".", 1)[1], row.kernel.__name__) for row in TABLE}


# --- compiled ---

numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


def child(code: str, mode: str | None, home: Path, path: Path = ROOT / "tests", **environment: str) -> Any:
    """What a fresh process prints as its last line, as JSON; its home is `home`."""
    env = {k: v for k, v in os.environ.items() if k not in ("CACHE_DIRECTORY", "XDG_CACHE_HOME", "HUSHGRID_KERNELS")}
    env |= {"HOME": str(home), "PYTHONPATH": str(path)} | ({"HUSHGRID_KERNELS": mode} if mode else {}) | environment
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


ALL_ROWS = """
import json, numpy as np, test_kernels as t
def refused(row):
    try: row.kernel(*row.wrong)
    except Exception: return True
    return False
assert t.jit.MODE == "numba" and hasattr(t.prox.soft, "signatures")
print(json.dumps([[np.asarray(row.kernel(*row.right)).tolist(), refused(row)] for row in t.TABLE]))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, Any]:
    """A home whose cache holds the compiled kernels, and what they answered."""
    home = tmp_path_factory.mktemp("home")
    return home, child(ALL_ROWS, "numba", home)


@numba
def test_compiled_kernels_equal_the_plain_ones_to_1e_12(compiled):
    for row, (answer, refuses) in zip(TABLE, compiled[1], strict=True):
        np.testing.assert_allclose(answer, row.kernel(*row.right), rtol=1e-12, atol=1e-15, err_msg=named(row))
        assert refuses, f"{named(row)} took its wrong arguments"


@numba
def test_compiled_kernels_are_kept_for_the_next_process_under_a_digest_of_the_sources(compiled):
    kept = sorted((compiled[0] / ".cache" / "hushgrid").iterdir())
    assert [path.name for path in kept] == [f"kernels-{jit.source_digest()}"]
    code = """
import json, test_kernels as t
for row in t.TABLE: row.kernel(*row.right)
stats = [row.kernel.stats for row in t.TABLE]
print(json.dumps([sum(sum(s.cache_misses.values()) for s in stats), all(s.cache_hits for s in stats)]))
"""
    assert child(code, "numba", compiled[0]) == [0, True]


@numba
def test_compiled_kernels_need_no_scipy(compiled):
    code = "import sys; sys.modules['scipy'] = None" + ALL_ROWS
    assert child(code, "numba", compiled[0]) == compiled[1]


@numba
@pytest.mark.parametrize("callee", ["inner.py", "__init__.py"])
def test_editing_a_callee_in_another_file_never_yields_the_old_numbers(tmp_path, callee):
    package = tmp_path / "copy"
    package.mkdir()
    shutil.copy(ROOT / "kernels" / "jit.py", package)
    (package / "__init__.py").write_text("OFFSET = 0.0\n")
    (package / "inner.py").write_text(
        "from copy_of.jit import kernel\nfrom copy_of import OFFSET\n"
        "@kernel\ndef inner(x):\n    return 2.0 * x + OFFSET\n"
    )
    (package / "outer.py").write_text(
        "from copy_of.jit import kernel\nfrom copy_of.inner import inner\n@kernel\ndef outer(x):\n    return inner(x)\n"
    )
    package.rename(tmp_path / "copy_of")
    code = "from copy_of.outer import outer; print(outer(1.0))"
    assert child(code, "numba", tmp_path, tmp_path) == 2.0
    edited = tmp_path / "copy_of" / callee
    stamp = edited.stat()
    edited.write_text(edited.read_text().replace("2.0 * x", "3.0 * x").replace("OFFSET = 0.0", "OFFSET = 1.0"))
    os.utime(edited, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # nor does the file's time save it
    assert child(code, "numba", tmp_path, tmp_path) == 3.0


@numba
def test_a_node_without_a_writable_cache_compiles_and_goes_on(tmp_path):
    blocked = tmp_path / "home"
    blocked.write_text("not a directory")  # holds for root too, whom permissions do not stop
    code = """
import json, test_kernels as t
print(json.dumps([t.jit.cache_directory(), t.prox.soft(t.x, 0.4).tolist()]))
"""
    directory, answer = child(code, "numba", blocked, CACHE_DIRECTORY=str(blocked / "systemd"))
    assert directory is None
    np.testing.assert_allclose(answer, prox.soft(x, 0.4), rtol=1e-12)
    assert not list((ROOT / "kernels").rglob("*.nbi")), "nothing is kept beside the sources"


def test_systemd_s_cache_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIRECTORY", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    jit.cache_directory.cache_clear()
    assert jit.cache_directory() == str(tmp_path / "first" / "hushgrid" / f"kernels-{jit.source_digest()}")
    assert list(Path(jit.cache_directory()).iterdir()) == []
    jit.cache_directory.cache_clear()


@pytest.mark.parametrize("mode", [None, "", "numpy"])
def test_numba_is_imported_only_when_it_is_asked_for(tmp_path, mode):
    code = """
import json, sys
from hushgrid.kernels import jit, losses, prox
print(json.dumps([jit.MODE, "numba" in sys.modules]))
"""
    assert child(code, mode, tmp_path) == ["numpy", False]


@pytest.mark.parametrize(
    ("setting", "hide", "line"),
    [
        ("Numba", "", "HUSHGRID_KERNELS: found 'Numba', expected numba or numpy"),
        ("numba", "sys.modules['numba'] = None", "HUSHGRID_KERNELS: found numba, which cannot be imported"),
    ],
)
def test_a_mode_that_cannot_be_is_an_input_error(tmp_path, setting, hide, line):
    code = f"""
import json, sys
{hide}
from hushgrid.kernels.errors import InputError
try: from hushgrid.kernels import prox
except InputError as error: print(json.dumps(str(error)))
"""
    assert child(code, setting, tmp_path).startswith(line)
