"""Time, chance and files are asked for in one place, so that a simulated machine can stand in for the real one."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("node", "broker/coordinator")
ASKING = {
    *("time.time", "time.monotonic", "time.sleep", "time.clock_gettime", "time.time_ns", "time.monotonic_ns"),
    *("os.urandom", "os.open", "os.pwrite", "os.pread", "os.fsync", "os.fdatasync", "os.replace", "os.rename"),
    *("os.ftruncate", "os.unlink", "sqlite3.connect", "select.epoll", "secrets.token_bytes", "datetime.now"),
}
#: What asks by itself, and why it may.
EXCEPTED = {
    "node/system.py": "is that place",
    "node/masks/identity.py": "certificates are of real machines",
    "node/site/sources.py": "opens a file that its owner writes, to read it; no fault is made in those",
    "node/site/intake_log.py": "appends a line for its owner, from which nothing is computed",
    "node/privacy/ledger_file.py": "opens the tables of a ledger in memory, which is on no machine's disk",
    "node/views.py": "views are for eyes: nothing is read from them",
}


def _asked(path: Path) -> set[str]:
    tree = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    calls = {ast.unparse(n) for n in tree if isinstance(n, ast.Attribute)}
    modules = {a.name for n in tree if isinstance(n, ast.Import) for a in n.names}
    modules |= {n.module or "" for n in tree if isinstance(n, ast.ImportFrom)}
    return (calls & ASKING) | ({"random", "secrets"} & modules)


def test_node_and_coordinator_ask_for_time_chance_and_files_in_node_system_alone():
    asked = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("node/transport/") and (what := _asked(path)):  # another has its place as a whole
                asked[name] = what
    assert asked.keys() <= EXCEPTED.keys(), asked
    assert "node/system.py" in asked
