"""Compiled code is never older than its sources, and gives the numbers of the plain kernels."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.kernels import jit
from hushgrid.kernels.problems import prox
from tests.support.agents.kernel_twins import TABLE, answer, named, x
from tests.support.paths import ROOT

# --- compiled ---


numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


def child(code: str, mode: str | None, home: Path, path: Path = ROOT, **environment: str) -> Any:
    """What a fresh process prints as its last line, as JSON; its home is `home`."""
    env = {k: v for k, v in os.environ.items() if k not in ("CACHE_DIRECTORY", "XDG_CACHE_HOME", "HUSHGRID_KERNELS")}
    paths = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    env |= {"HOME": str(home), "PYTHONPATH": paths} | ({"HUSHGRID_KERNELS": mode} if mode else {}) | environment
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


ALL_ROWS = """
import json, numpy as np
from tests.support.agents import kernel_twins as t
from hushgrid.kernels import jit
from hushgrid.kernels.problems import prox
def refused(row):
    try: row.kernel(*row.wrong)
    except Exception: return True
    return False
assert jit.MODE == "numba" and hasattr(prox.soft, "signatures")
print(json.dumps([[t.answer(row.kernel, row.right).tolist(), refused(row)] for row in t.TABLE]))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, Any]:
    """A home whose cache holds the compiled kernels, and what they answered."""
    home = tmp_path_factory.mktemp("home")
    return home, child(ALL_ROWS, "numba", home)


@numba
def test_compiled_kernels_equal_the_plain_ones_to_1e_12(compiled):
    for row, (found, refuses) in zip(TABLE, compiled[1], strict=True):
        plain = answer(row.kernel, row.right)
        np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-15, err_msg=named(row))
        assert refuses, f"{named(row)} took its wrong arguments"


@numba
def test_compiled_kernels_are_kept_for_the_next_process_under_a_digest_of_the_sources(compiled):
    kept = sorted((compiled[0] / ".cache" / "hushgrid").iterdir())
    assert [path.name for path in kept] == [f"kernels-{jit.source_digest()}"]
    code = """
import json
from tests.support.agents import kernel_twins as t
from hushgrid.kernels import jit
from hushgrid.kernels.problems import prox
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
@pytest.mark.parametrize("callee", ["within/inner.py", "__init__.py"])
def test_editing_a_callee_in_another_file_never_yields_the_old_numbers(tmp_path, callee):
    package = tmp_path / "copy"
    (package / "within").mkdir(parents=True)
    (package / "within" / "__init__.py").touch()
    shutil.copy(ROOT / "kernels" / "jit.py", package)
    (package / "__init__.py").write_text("OFFSET = 0.0\n")
    (package / "within" / "inner.py").write_text(
        "from copy_of.jit import kernel\nfrom copy_of import OFFSET\n"
        "@kernel\ndef inner(x):\n    return 2.0 * x + OFFSET\n"
    )
    (package / "outer.py").write_text(
        "from copy_of.jit import kernel\nfrom copy_of.within.inner import inner\n@kernel\ndef outer(x):\n    return "
        "inner(x)\n"
    )
    package.rename(tmp_path / "copy_of")
    code = "from copy_of.outer import outer; print(outer(1.0))"
    plainly = {"PYTHONDONTWRITEBYTECODE": "1"}  # Python's own cache goes by time and size, and would be fooled
    assert child(code, "numba", tmp_path, tmp_path, **plainly) == 2.0
    edited = tmp_path / "copy_of" / callee
    stamp = edited.stat()
    edited.write_text(edited.read_text().replace("2.0 * x", "3.0 * x").replace("OFFSET = 0.0", "OFFSET = 1.0"))
    os.utime(edited, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # nor does the file's time save it
    assert child(code, "numba", tmp_path, tmp_path, **plainly) == 3.0


@numba
def test_a_node_without_a_writable_cache_compiles_and_goes_on(tmp_path):
    blocked = tmp_path / "home"
    blocked.write_text("not a directory")  # holds for root too, whom permissions do not stop
    code = """
import json
from tests.support.agents import kernel_twins as t
from hushgrid.kernels import jit
from hushgrid.kernels.problems import prox
print(json.dumps([jit.cache_directory(), prox.soft(t.x, 0.4).tolist()]))
"""
    directory, answer = child(code, "numba", blocked, CACHE_DIRECTORY=str(blocked / "systemd"))
    assert directory is None
    np.testing.assert_allclose(answer, prox.soft(x, 0.4), rtol=1e-12)
    assert not list((ROOT / "kernels").rglob("*.nbi")), "nothing is kept beside the sources"


@pytest.mark.parametrize("mode", [None, "", "numpy"])
def test_numba_is_imported_only_when_it_is_asked_for(tmp_path, mode):
    code = """
import json, sys
from hushgrid.kernels import jit
from hushgrid.kernels.problems import losses, prox
from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.lab.rollout.compiled import stacked
from hushgrid.kernels.problems.losses import Loss, Objective
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
try: from hushgrid.kernels.problems import prox
except InputError as error: print(json.dumps(str(error)))
"""
    assert child(code, setting, tmp_path).startswith(line)
