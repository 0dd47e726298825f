"""One run with canaries by daemons through a real broker, guessed from what a listener at the broker has heard."""

import numpy as np

from hushgrid.lab.audit.one_run import one_run
from tests.support.scenarios.record_scenarios import GAUSSIAN, scenario


def test_a_run_of_daemons_shows_much_of_its_claim_and_not_more():
    over = GAUSSIAN | {"problem.kind": "least-squares", "privacy.epsilon": 8.0, "privacy.accountant": "gdp"}
    raw = scenario(over | {"algorithm": {"name": "dgd", "rounds": 20, "step_size": 0.1}})
    found = one_run(raw, canaries=400, broker="embedded", coins=np.random.default_rng(1))
    assert (found.transport, found.seen) == ("mqtt", 19)
    assert 2.0 <= found.epsilon <= 8.0
