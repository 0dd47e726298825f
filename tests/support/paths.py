"""Where the parts of the repository are that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
DEPLOY = ROOT / "deploy"
VECTORS = ROOT / "tests" / "vectors"  #: iterates of independent reference code
