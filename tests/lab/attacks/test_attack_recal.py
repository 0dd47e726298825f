"""`hushgrid attack` on RECAL: what the token gives away of each variant, and of what it is made."""

import json
import shutil

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.lab.attacks.attack import attack
from hushgrid.node.problems.records.gate import RowsGate
from tests.support.runs.attacked_runs import attacked


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("attacked")
    made = {"none": {}, "published": {"privacy": {"epsilon": 0.1}}, "guarded": {"privacy": {"epsilon": 100.0}}}
    return {variant: attacked(place / variant, variant=variant, **over) for variant, over in made.items()}


@pytest.mark.runs
def test_without_noise_every_gradient_and_every_image_with_its_label_is_recovered(runs):
    found = attack(runs["none"], runs["none"].parent)
    # 79 of 80 activations send a token; nothing is hidden, not even of a last visit.
    assert sum(g["count"] for g in found["gradients"].values()) == 79
    assert all(g["complete"] == g["count"] and g["what"] == "gradient" for g in found["gradients"].values())
    assert all(r == r | {"count": 1, "method": "rank-one", "consistent": True} for r in found["rows"].values())
    assert found["scores"]["gradient_error"] <= 1e-12
    assert found["scores"]["psnr_worst"] >= 100
    assert found["scores"]["labels"] == 1.0


@pytest.mark.runs
def test_the_published_noise_hides_nothing_at_a_claimed_epsilon_of_a_tenth(runs):
    found = attack(runs["published"], runs["published"].parent)
    assert (
        sum(g["complete"] for g in found["gradients"].values()) == 75
    )  # of each node's last visit the next would tell
    assert found["scores"]["gradient_error"] <= 1e-10
    assert found["scores"]["psnr_worst"] >= 80
    assert found["scores"]["labels"] == 1.0
    assert found["upheld"] is False


@pytest.mark.runs
def test_of_a_guarded_run_it_ends_with_noisy_answers_and_says_so(runs):
    found = attack(runs["guarded"], runs["guarded"].parent)
    assert {g["what"] for g in found["gradients"].values()} == {"noisy answer"}
    assert not any(r["consistent"] for r in found["rows"].values())
    assert found["scores"]["gradient_error"] > 1
    page = (runs["guarded"] / "attack/attack.html").read_text()
    assert "ends with the gates&#x27; noisy answers" in page
    assert "these rows are recovered" not in page


def test_it_reads_the_transcript_and_the_result_alone_and_writes_the_same_again(runs, tmp_path):
    for name in ("transcript.jsonl", "result.json"):
        shutil.copy2(runs["none"] / name, tmp_path / name)
    first = attack(tmp_path)
    arrays = dict(np.load(tmp_path / "attack/recovered.npz"))
    (tmp_path / "attack/left.txt").write_text("from before")
    assert attack(tmp_path) == first == json.loads(json.dumps(first, allow_nan=False))
    assert not (tmp_path / "attack/left.txt").exists()
    again = np.load(tmp_path / "attack/recovered.npz")
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    assert arrays["g_n0"].shape == arrays["at_n0"].shape == (20, 640)
    assert list(arrays["when_n0"]) == list(range(0, 80, 4))
    assert arrays["rows_n0"].shape == (1, 64)
    assert first["scores"] is None
    assert first["arrays"] == "attack/recovered.npz"
    for picture in first["pictures"]:
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.runs
def test_with_an_l1_term_the_published_token_hides_coordinates_and_the_attack_says_which(tmp_path):
    run = attacked(tmp_path, variant="published", visits=60, problem={"regularizer": {"l1": 0.01}}, seed=2)
    found = attack(run, tmp_path)
    arrays = np.load(run / "attack/recovered.npz")
    hidden = {node: np.isnan(arrays[f"g_{node}"]) for node in found["gradients"]}
    assert any(h.any() for h in hidden.values())
    for node, g in found["gradients"].items():
        whole = ~(hidden[node] | np.isnan(arrays[f"at_{node}"])).any(axis=1)
        assert g["complete"] == whole.sum() < g["count"]
    # Where it is told, it is right: an l1 term hides coordinates and adds no error to the others.
    assert found["scores"]["gradient_error"] <= 1e-9


@pytest.mark.parametrize(
    ("gone", "said"), [("transcript.jsonl", "found no transcript.jsonl"), ("result.json", "found no result.json")]
)
def test_what_is_missing_is_said_in_one_line(runs, tmp_path, gone, said):
    for name in {"transcript.jsonl", "result.json"} - {gone}:
        shutil.copy2(runs["none"] / name, tmp_path / name)
    with pytest.raises(InputError, match=said):
        attack(tmp_path)
    assert not (tmp_path / "attack").exists()


def test_a_shape_that_does_not_fit_and_truth_that_is_not_there_are_refused(runs, tmp_path):
    with pytest.raises(InputError, match="found 8x9, expected 64 entries"):
        attack(runs["none"], shape="8x9")
    with pytest.raises(InputError, match=r"n0\.npz: found no such file"):
        attack(runs["none"], tmp_path)


@pytest.mark.runs
def test_the_report_of_a_published_run_links_to_its_attack_and_no_other_does(tmp_path):
    for variant in ("published", "guarded"):
        run = attacked(tmp_path / variant, nodes=3, visits=4, variant=variant, whole=True)
        assert ('href="attack/attack.html"' in (run / "report.html").read_text()) == (variant == "published")


@pytest.mark.runs
def test_of_a_guarded_run_what_is_recovered_are_the_gates_own_answers(tmp_path, monkeypatch):
    answered, gradient = {}, RowsGate.gradient

    def noted(gate, x):
        answered.setdefault(gate.node, []).append(gradient(gate, x))
        return answered[gate.node][-1]

    monkeypatch.setattr(RowsGate, "gradient", noted)
    run = attacked(tmp_path, variant="guarded", privacy={"epsilon": 10.0})
    attack(run)
    arrays = np.load(run / "attack/recovered.npz")
    for node, answers in answered.items():
        heard = arrays[f"g_{node}"]
        # Rounding of u and x, in units of answers: 1/(alpha beta) = 15 times 2^-53, over 80 activations.
        assert np.max(np.abs(heard - answers[: len(heard)])) <= 1e-12 * np.max(np.abs(answers))
