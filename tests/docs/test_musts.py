"""Each "must" and "never" of the pages that an owner reads is a rule of `hushgrid check` with a test,
or no file can break it.

`check` is the owner's only lawyer: a sentence that asks something of a file, and that nothing refuses,
protects nobody. So each such sentence has a row here: words of it, and beside them the test of the rule,
or why there is no file that the sentence could be held against. A new "must" without a row fails; write the rule,
its test and the row.
"""

import ast
import re

import pytest

from tests.support.paths import ROOT

MUST = re.compile(r"\b(must|never)\b", re.IGNORECASE)

BROKERS, SITE = "tests/node/config/test_brokers.py", "tests/cli/test_check_site.py"

#: Page: {words of a sentence: the test of its rule, or why no file can break it}.
ANSWERS = {
    "docs/site.md": {
        "never of the fleet's.": f"{BROKERS}::test_the_fleets_own_broker_is_none_of_the_site",
        "with file and line number and never a value": "what the program logs",
        "never in a refusal, in a time": "what the program tells of a reading that has expired",
        "Beside a `window` a source needs a "
        "`retention`": "tests/node/site/test_retention.py::test_a_source_beside_a_window_needs_a_retention_that_is_less",  # noqa: E501
        "and never forward": "how the program dates a reading after a crash",
        "a source never changes them": "m is what `data` names, whatever a source gives",
        "It never rises because a value has come": "what the program raises the data version for",
        "gradients, which are never "
        "repeated": "tests/system/site/test_fresh.py::test_fresh_is_refused_for_rows_in_a_line",
        "one version never has two sets of data": "the program stores the values before the version rises",
        "says whether it gives values, never which": "what the program tells Home Assistant",
        "**Never put raw loads on the sink's topics**": f"{BROKERS}::test_set_points_are_not_told_where_raw_loads_are",
        "nor on any topic of the fleet's "
        "broker": f"{BROKERS}::test_a_fleets_topics_are_none_of_the_site_on_whatever_broker",
    },
    "docs/masked.md": {
        "it must rely on as many honest": "a plan comes from the coordinator, and the device refuses it by this key",
        "an authority that is not the "
        "coordinator's": "tests/node/masks/test_identity.py::test_the_fleets_own_authority_is_no_authority_of_masked_runs_whatever_its_files_are_called",  # noqa: E501
        "although it may never be decoded": "what a masked answer costs",
        "a plan must reckon with as many "
        "corrupt": "a plan comes from the coordinator, and the device refuses it by this key",
    },
    "docs/continuous.md": {
        "`wait_s` must be less than "
        "`run.every`": "tests/node/config/test_coordinator_schedule.py::test_what_is_wrong_is_one_line_with_file_key_and_both_values",  # noqa: E501
        "absent: all must be there": f"{SITE}::test_a_quorum_is_of_the_members",
        "Two runs never overlap": "how the program keeps its schedule",
        "prices must climb to the value of lost load, and a tenth": "what the optimum is where load stays unserved",
        "Without `quorum` all members must be there": "what the program makes of who is absent",
        "prices must climb to the value of lost load, by the weight": "what the optimum is where load stays unserved",
        "A zone that has never taken part cannot be held.": "what the program makes of who is absent",
    },
    "README.md": {
        "never too little": "the program stores a spend before its answer leaves",
    },
}


def sentences(page: str) -> list[str]:
    """Of a page, each on one line; of README.md those of its guarantees."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "README.md":
        text = re.split(r"^## ", text[text.index("## What is guaranteed") + 3 :], maxsplit=1, flags=re.M)[0]
    parts, code = [""], False
    for line in text.splitlines():
        if line.startswith("```"):
            code = not code
        if code or not line.strip() or re.match(r"\s*([-*|>#]|\d+\.) ?", line) or line.startswith("```"):
            parts.append("")
        parts[-1] += " " + line.strip()
    return [
        sentence for part in parts for sentence in re.split(r"(?<=[.!?])\s+(?=[\[(*`A-Z])", part.strip()) if sentence
    ]


def without_answer(page: str, answers: dict[str, str]) -> list[str]:
    return [s for s in sentences(page) if MUST.search(s) and not any(words in s for words in answers)]


@pytest.mark.parametrize("page", ANSWERS)
def test_each_must_and_never_is_a_rule_of_check_or_none_of_a_file(page):
    assert without_answer(page, ANSWERS[page]) == [], "a must or a never: add its rule to check, and a row above"


@pytest.mark.parametrize("page", ANSWERS)
def test_each_row_quotes_its_page(page):
    joined = "\n".join(sentences(page))
    assert [words for words in ANSWERS[page] if words not in joined] == []


def test_each_rule_has_its_test():
    rules = [answer for answers in ANSWERS.values() for answer in answers.values() if answer.startswith("tests/")]
    assert len(rules) > 3
    for rule in rules:
        file, name = rule.split("::")
        tests = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        assert name in [test.name for test in tests if isinstance(test, ast.FunctionDef)], rule


def test_a_must_without_a_row_is_seen():
    page, answers = "docs/site.md", dict(ANSWERS["docs/site.md"])
    del answers["nor on any topic of the fleet's broker"], answers["**Never put raw loads on the sink's topics**"]
    (sentence,) = without_answer(page, answers)
    assert sentence.startswith("- **Never put raw loads")
