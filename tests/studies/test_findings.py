"""`hushgrid study findings`: claims that do not hold."""

import pytest

from hushgrid.studies.papers import findings


def test_of_many_gaussian_answers_theorem_4_6_says_less_than_they_cost():
    table, _ = findings.totals((1, 5000))
    (_, said, true), (_, said_of_many, true_of_many) = table.rows
    assert said > true
    assert (said_of_many, true_of_many) == (pytest.approx(70.1, rel=1e-3), pytest.approx(151.6, rel=1e-3))


def test_dpp2s_first_gradient_is_noise_and_its_later_ones_are_told():
    table, _ = findings.decayed(60)
    error = {row[0]: row[1] for row in table.rows}
    assert error[1] > 1.0
    assert error[60] < 0.9**50 * error[1]  # the noise is r^59 of the first


def test_theorem_3_lacks_the_first_rounds_share():
    table, _ = findings.noise_that_decays((2, 20))
    assert [true - said for _, said, true in table.rows] == [pytest.approx(1.0, abs=1e-2)] * 2


def test_mr_admm_with_penalties_of_nodes_stops_where_those_of_edges_go_on():
    table, _ = findings.wrong_limit(40)
    by_node, by_edge = ({"half": row[1], "end": row[2]} for row in table.rows)
    assert by_node["end"] > 0.015
    assert by_edge["end"] < 0.5 * by_edge["half"]


def test_two_rounds_without_noise_tell_all_loads_and_one_does_not():
    table = findings.loads_told((1, 2))
    (_, none, _), (_, all_, error) = table.rows
    assert (none, all_) == ("0 of 3", "3 of 3")
    assert error < 1e-3  # what the solver leaves, 1e-8, over the smallest singular value of the fit, some 7e-5


def test_what_6_4_leaves_out_is_as_much_again_for_two_classes():
    table = findings.sensitivities((2, 10))
    assert [row[1] for row in table.rows] == [pytest.approx(2.0, rel=1e-9), pytest.approx(1.491, rel=1e-3)]


def test_corollary_1_promises_1_where_nearly_k_is_attained():
    table, _ = findings.corollary_1((8,))
    assert table.rows[0][2] >= 7.9
