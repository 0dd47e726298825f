"""Runs in two levels end to end in one process: the same sums as in one level, what is paid, what is silent."""

from contextlib import closing
from math import sqrt

import numpy as np
import pytest

from hushgrid.broker.report import summary
from hushgrid.broker.simulation import run
from hushgrid.broker.sites.site import Site
from hushgrid.broker.sites.upper import SiteDevice, UpperMember
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.masked import MaskedSums, decodable
from hushgrid.lab.attacks.transcript import parse
from hushgrid.lab.audit.audit import audited
from hushgrid.lab.audit.ledgers import compared
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems import masking_words
from tests.support.runs.background_run import assert_same_bits
from tests.support.runs.masked_runs import masked, summed

NONE = {"privacy": {"masked": {"corrupt": 0}}}
SITES = {"privacy": {"masked": {"corrupt": 0, "sites": {"number": 2}}}}


def test_two_levels_add_up_what_one_level_does_bit_by_bit(tmp_path):
    flat, levels = (run(summed(tmp_path, nodes=6, **over)) for over in (NONE, SITES))
    assert np.array_equal(levels.solution["x"], flat.solution["x"])
    assert levels.summary["summed"] == flat.summary["summed"] == [f"n{i}" for i in range(6)]
    assert levels.privacy.claimed == flat.privacy.claimed


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", [{}, {"momentum": 0.6}])
def test_federated_averaging_in_two_levels_takes_the_steps_of_one(tmp_path, algorithm):
    flat, levels = (run(masked(tmp_path, nodes=6, algorithm=algorithm, **over)) for over in (NONE, SITES))
    assert np.array_equal(levels.solution["x"], flat.solution["x"])
    assert levels.rounds_done == flat.rounds_done == 6
    assert levels.quality.verdict == flat.quality.verdict


@pytest.mark.runs
@pytest.mark.parametrize("seed", range(4))
def test_loss_repeats_reordering_and_crashes_of_every_role_change_no_bit(tmp_path, seed):
    calm = run(masked(tmp_path, nodes=6, **SITES))
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.02, "seed": seed}
    rough = run(masked(tmp_path, nodes=6, run={"faults": faults}, **SITES))
    assert_same_bits(rough, calm)


def test_a_result_and_its_ledgers_say_three_numbers(tmp_path):
    """h = 6 and h_s = 3: the site's coordinator's mu is sqrt 2 larger, a share alone sqrt 6."""
    result = run(summed(tmp_path, nodes=6, **SITES), out=tmp_path / "run")
    account = result.privacy.per_node["n0"]
    with closing(Ledger(tmp_path / "run/ledger/n0.ledger", "n0", durable=False)) as ledger:
        (spend,) = ledger.spends.rows()
    for key, times in {"ledger": 1, "at_site": sqrt(2), "alone": sqrt(6)}.items():
        assert account[key].epsilon == pytest.approx(gdp_epsilon(spend.value * times, 1e-5), rel=1e-10)
    sentences = " ".join(masking_words.claim(result.summary, "4", "{:.6g}".format))
    assert "its own site's broker and coordinator, which see the site's sums" in sentences
    assert "the fleet's coordinator and broker, 0 other sites and any 0 of the nodes" in masking_words.where(
        result.summary
    )
    assert account.spent.epsilon == pytest.approx(result.privacy.claimed.epsilon, rel=1e-6)
    assert result.messages == result.in_sites["messages"] + 2 * 2 * 4  # four exchanges of two sites
    assert result.in_sites["messages"] == 2 * 6 * 4


def test_a_result_says_what_went_on_in_each_level(tmp_path):
    """Six devices in two sites: each is asked four times and answers; so is each site."""
    raw = summed(tmp_path, nodes=6, **SITES)
    result = run(raw, out=tmp_path / "run")
    below, above = result.in_sites, result.between_sites
    assert (below.messages, above.messages) == (2 * 6 * 4, 2 * 2 * 4)
    assert (below.messages + above.messages, below.bytes + above.bytes) == (result.messages, result.bytes)
    assert min(below.seconds, above.seconds) > 0
    assert below.seconds + above.seconds <= result.wall_s
    for text in (summary.text(result, scenario_from(raw)), (tmp_path / "run/report.html").read_text()):
        assert "48 messages" in text
        assert "16 messages" in text
    assert run(summed(tmp_path, nodes=6, **NONE)).between_sites is None


@pytest.mark.runs
def test_the_noise_of_two_levels_is_that_of_the_law(tmp_path):
    """25 sums over six devices in two sites: their deviations from the exact sum, in standard deviations of six shares,
    are chi-square.
    """
    exact = run(summed(tmp_path, nodes=6, masked=False, privacy={"epsilon": 1e8}))
    z = []
    for seed in range(25):
        result = run(summed(tmp_path, nodes=6, seed=seed, **SITES))
        z.append((result.solution["x"] - exact.solution["x"]) / result.solution["sd"])
    squares = np.concatenate(z) ** 2
    k = squares.size
    assert abs(squares.sum() - k) < 4 * sqrt(2 * k)  # chi-square with k degrees: four standard deviations


def test_whoever_hears_every_broker_decodes_the_fleets_sum_and_each_sites_and_no_device(tmp_path):
    """And an audit finds each device's one answer in the run of its site, and in its ledger."""
    result = run(summed(tmp_path, nodes=6, run={"record": "transcript"}, **SITES), out=tmp_path / "run")
    found = {s.among: s for s in decodable(parse(result.transcript, "t"))}
    first, second, both = ("n0", "n1", "n2"), ("n3", "n4", "n5"), ("s1", "s2")
    assert {among: s.devices for among, s in found.items()} == {first: 3, second: 3, both: 6}
    assert np.array_equal(found[both].total, found[first].total + found[second].total)
    assert "No answer of a single device" in " ".join(MaskedSums().recover(parse(result.transcript, "t")).notes)
    summary = attack(tmp_path / "run")
    assert (summary["sums"], summary["sums_at_site"], summary["alone"]) == (3, 2, [])
    page = (tmp_path / "run/attack/attack.html").read_text()
    assert "1 over the whole fleet, as its coordinator does, and 2 over a site" in page
    ledgers = [tmp_path / f"run/ledger/n{i}.ledger" for i in range(6)]
    rows = compared(tmp_path / "run/transcript.jsonl", ledgers)
    assert [(c.node, c.travelled, c.paid, c.wrong) for c in rows] == [(f"n{i}", 1, 1, ()) for i in range(6)]


@pytest.mark.runs
def test_an_audit_measures_either_claim_where_it_is_seen(tmp_path):
    """What the fleet sees is sums of six shares; what the site's coordinator sees, of three: mu is sqrt 2 larger."""
    raw = summed(tmp_path, nodes=6, **SITES)
    fleet, site = (audited(raw, games=4000, at_site=at_site) for at_site in (False, True))
    assert site.terms.per_answer == pytest.approx(fleet.terms.per_answer * sqrt(2), rel=1e-9)
    assert site.claim.epsilon == pytest.approx(fleet.terms.at_site(), rel=1e-9)
    for seen, h in ((fleet, 6), (site, 3)):
        (answer,) = seen.worst.canary.answers
        assert answer.shares == h
        assert not seen.above
        assert 0.5 * seen.power < seen.worst.bounds[seen.confidence].epsilon <= seen.claim.epsilon
    assert site.worst.bounds[site.confidence].epsilon > fleet.claim.epsilon  # the site's coordinator sees more
    with pytest.raises(InputError, match=r"privacy.masked.sites: found none, expected sites .--at-site."):
        audited(summed(tmp_path, nodes=6, **NONE), games=4000, at_site=True)


def test_a_site_starts_though_it_cannot_read_the_plan_of_its_last_run(tmp_path):
    with closing(Ledger(tmp_path / "s1.ledger", "s1", durable=False)) as ledger:
        ledger.join(b"r" * 16, b"a plan of another program")
        ledger.commit(b"r" * 16, status="done", last=b"l")
        upper = UpperMember(SiteDevice("s1", lambda *_: None), "taps", ledger)
        assert Site(upper, lambda plan: None).finished


def test_one_broker_is_not_enough_for_a_run_with_sites(tmp_path):
    with pytest.raises(InputError, match=r"--broker: found mqtt://127.0.0.1:1 with sites, expected auto, embedded or"):
        run(summed(tmp_path, nodes=6, **SITES), transport="mqtt", broker="mqtt://127.0.0.1:1")
