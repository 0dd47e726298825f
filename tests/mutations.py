"""What `make test` must see, and which tests it therefore has.

`make mutations`: each mutation below is made in a copy of the tree, and a test of the first tier must fail there. The
files that mirror what it changes are tried first, then all.

`make tiers` records what each test costs, then writes the marks `runs`: to tests with a case above LIMIT seconds of
CPU, but for those of pages, and for the cheapest that sees a mutation which no test of the first tier sees.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support import tiers

ROOT = Path(__file__).parents[1]
LIMIT = 0.15  #: s of CPU, a case of the first tier
LARGEST = 2.0  #: s of CPU, all cases of a test in the first tier
FIRST = "not runs and not long and not system"


class Mutation(NamedTuple):
    """`old`, which stands in `file` once, becomes `new`; `mirrors`: the files of tests that should see it."""

    name: str
    file: str
    old: str
    new: str
    mirrors: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "the sign of recal's (7d)",
        "kernels/algorithms/recal.py",
        "half + beta * ((x_new - x) - (y_new - y))",
        "half + beta * ((x_new - x) + (y_new - y))",
        ("kernels/algorithms/test_recal.py",),
    ),
    Mutation(
        "the sensitivity without the rounding to the grid",
        "kernels/privacy/noise.py",
        "return g, up(Fraction(sensitivity) + Fraction(g) * Fraction(rounding))",
        "return g, sensitivity",
        ("kernels/privacy/test_noise.py",),
    ),
    Mutation(
        "a gate that gives one answer beyond its cap",
        "node/privacy/gate.py",
        "self.state.answers >= cap",
        "self.state.answers > cap",
        ("node/privacy/test_gate.py",),
    ),
    Mutation(
        "data that are touched before the answer is paid",
        "node/privacy/gate.py",
        "t, lattice = self._terms(), self._noise_lattice()\n        spent,",
        "t, lattice, early = self._terms(), self._noise_lattice(), compute()\n        compute = lambda: early\n       "
        " spent,",
        ("node/privacy/test_gate.py", "node/privacy/test_rows_gate.py"),
    ),
    Mutation(
        "a driver that does not commit its spends",
        "node/runtime/driver.py",
        "spends=gate.spends if gate else [],",
        "spends=[],",
        ("node/runtime/test_driver.py",),
    ),
    Mutation(
        "a pad that is used for a second question",
        "kernels/patterns/masked.py",
        "s.last_answered < (k, a)",
        "s.last_answered <= (k, a)",
        ("kernels/patterns/test_masked.py",),
    ),
    Mutation(
        "a node that takes a token behind the barrier",
        "kernels/patterns/token.py",
        "(epoch < s.announced and hop <= s.barrier) or ",
        "",
        ("kernels/patterns/test_token.py",),
    ),
    Mutation(
        "a ledger's log that is not synced",
        "node/privacy/ledger_log.py",
        "system.machine.datasync(self._file)",
        "pass",
        ("node/privacy/test_ledger_log.py",),
    ),
    Mutation(
        "consent to twice the budget",
        "node/privacy/budget.py",
        "(t, answers, more)) > self.budget.epsilon * DECIMAL",
        "(t, answers, more)) > 2 * self.budget.epsilon * DECIMAL",
        ("node/privacy/test_budget_check.py",),
    ),
    Mutation(
        "nodes that agree at twice the distance",
        "kernels/problems/verdict.py",
        "AGREED = 0.05",
        "AGREED = 0.1",
        ("broker/report/test_quality.py",),
    ),
    Mutation(
        "a device that joins the plan of an earlier session",
        "node/runtime/member.py",
        "body.members[self.name] != self.session",
        "body.members[self.name] > self.session",
        ("node/runtime/test_hostile.py",),
    ),
    Mutation(
        "group totals by k in place of k^2",
        "kernels/privacy/accounting.py",
        "self._mu2 += k * k * other._mu2",
        "self._mu2 += k * other._mu2",
        ("kernels/privacy/test_accounting.py",),
    ),
)


class Copy:
    """A copy of the tree in which mutations are made."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "tree"
        listed = subprocess.run(
            ("git", "ls-files", "-co", "--exclude-standard"), cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        for name in listed.stdout.decode().splitlines():
            if os.path.lexists(ROOT / name):
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    def fails(self, *options: str) -> list[str]:
        """The tests that fail there; docs say nothing of what the code does."""
        command = (sys.executable, "-m", "pytest", "-rfE", "-p", "no:cacheprovider", "--ignore=tests/docs", *options)
        environment = os.environ | {"HUSHGRID_KERNELS": "numpy"}
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)

    def tier(self, *options: str) -> list[str]:
        return self.fails("-n", "2", "--dist", "worksteal", "--ignore=tests/system", *options)

    def seen(self, mutation: Mutation) -> str:
        """The first test of the first tier that fails under a mutation; "": none does."""
        mirrors = [f"tests/{file}" for file in mutation.mirrors if (self.root / "tests" / file).exists()]
        for options in ((*mirrors, "-x", "-m", FIRST),) if mirrors else ():
            if found := self.fails(*options):
                return found[0]
        return next(iter(self.tier("-x", "-m", FIRST)), "")

    def make(self, mutation: Mutation) -> str:
        """Makes it, and returns the text that was there."""
        path = self.root / mutation.file
        text = path.read_text()
        path.write_text(mutated(text, mutation))
        return text

    def undo(self, mutation: Mutation, text: str) -> None:
        (self.root / mutation.file).write_text(text)


def mutated(text: str, mutation: Mutation) -> str:
    """Raises ValueError if what it replaces does not stand there once."""
    if (count := text.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.name}: found {count} times in {mutation.file}, expected once: {mutation.old!r}")
    return text.replace(mutation.old, mutation.new)


def survivors(copy: Copy) -> list[Mutation]:
    """The mutations that no test of the first tier sees. Raises RuntimeError if tests fail without one."""
    mirrors = sorted({f"tests/{file}" for mutation in MUTATIONS for file in mutation.mirrors})
    if failed := copy.fails(*mirrors, "-m", FIRST):
        raise RuntimeError(f"without a mutation: {failed}")
    alive = []
    for mutation in MUTATIONS:
        text = copy.make(mutation)
        seen = copy.seen(mutation)
        copy.undo(mutation, text)
        print(f"{mutation.name}: {seen or 'not seen'}", flush=True)
        if not seen:
            alive.append(mutation)
    return alive


# --- the marks ---


def costs_of(profile: Path) -> dict[str, list[float]]:
    """What the cases of each test have cost, s of CPU, by `file::function`."""
    costs = defaultdict[str, list[float]](list)
    for line in profile.read_text().splitlines():
        seconds, name = line.split(" ", 1)
        costs[name.split("[")[0]].append(float(seconds))
    return costs


def write(root: Path, runs: Iterable[str], costs: Iterable[str]) -> None:
    """Marks these tests `runs`, and no other one of those that were recorded; a file of none but these as a whole."""
    of_file = defaultdict[str, set[str]](set)
    for test in costs:
        of_file[test.split("::")[0]].add(test)
    runs = {*runs}
    for file, tests in of_file.items():
        path = root / file
        lines = [line for line in path.read_text().splitlines() if line.strip() not in (tiers.FILE, tiers.TEST)]
        path.write_text(_marked(lines, {test.split("::")[-1] for test in tests & runs}))


def _marked(lines: list[str], slow: set[str]) -> str:
    """The text of a file with these tests marked."""
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines) + "\n")
    if not slow:
        return text
    lines, module = text.splitlines(), ast.parse(text)
    tests = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    whole = all(node.name in slow or "pytest.mark.long" in map(ast.unparse, node.decorator_list) for node in tests)
    if not re.search(r"^import pytest$", text, re.M):
        at = next(node.lineno for node in module.body if isinstance(node, ast.Import | ast.ImportFrom))
        lines.insert(at - 1, "import pytest")  # ruff sorts it
        module = ast.parse("\n".join(lines))
    own = any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" for node in module.body)
    if whole and not own:
        last = max(node.end_lineno or 0 for node in module.body if isinstance(node, ast.Import | ast.ImportFrom))
        lines[last:last] = ["", tiers.FILE]
    else:
        for node in sorted(ast.walk(module), key=lambda node: -getattr(node, "lineno", 0)):
            if isinstance(node, ast.FunctionDef) and node.name in slow:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                lines.insert(first - 1, " " * node.col_offset + tiers.TEST)
    return "\n".join(lines) + "\n"


def choose(costs: dict[str, list[float]]) -> None:
    """Marks by cost, then takes the mark from the cheapest test that sees what the first tier does not see yet."""
    runs = {test for test, cases in costs.items() if max(cases) > LIMIT or sum(cases) > LARGEST}
    runs -= {test for test in runs if test.startswith("tests/docs/")}
    write(ROOT, runs, costs)
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy(Path(directory))
        for mutation in survivors(copy):
            text = copy.make(mutation)
            failed = {name.split("[")[0] for name in copy.tier("-m", "runs and not long and not system")} & runs
            copy.undo(mutation, text)
            if not failed:
                raise RuntimeError(f"{mutation.name}: no test sees it")
            best = min(failed, key=lambda test: sum(costs[test]))
            print(f"{mutation.name}: {best}, {sum(costs[best]):.1f} s", flush=True)
            runs.remove(best)
    write(ROOT, runs, costs)


def main() -> int:
    if sys.argv[1:]:
        choose(costs_of(Path(sys.argv[1])))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        return 1 if survivors(Copy(Path(directory))) else 0


if __name__ == "__main__":
    sys.exit(main())
