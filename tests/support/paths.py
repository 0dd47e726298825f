"""Where the parts of the repository are that tests read."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: The tree, as it is declared: the folders at its top, and the pages there. What else lies in a checkout (runs, a site,
#: a wheelhouse, notes of somebody's own) is none of it, whoever has put it there.
FOLDERS = (
    "hushgrid",
    *sorted(path.name for path in (ROOT / "hushgrid").iterdir() if path.is_symlink()),
    "docs",
    "tests",
)
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
VECTORS = ROOT / "tests" / "vectors"  #: iterates of independent reference code
