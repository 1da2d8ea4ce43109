"""What the measurement of `scripts/measure_summary` finds stays within its bounds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from pincer_trace.plaintext.summary import DEFAULT, STRICT_SYMBOLIC, Mode

MEASURE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts/measure_summary"))
# as the paper has them
PAIRS = {
    **dict.fromkeys(("email_sender",), 10),
    **dict.fromkeys(("body_in_window",), 12),
    **dict.fromkeys(("body_beyond_window", "list_beyond_window", "participants", "list_items_in_window"), 8),
    **dict.fromkeys(
        ("iban_counterparty", "url", "dict_keys_beyond", "injection_stripped", "iban_request_mentioned"), 6
    ),
    **dict.fromkeys(
        ("email_request_mentioned", "alias_carryover", "subject_in_window", "txn_counterparty_plaintext"), 6
    ),
    **dict.fromkeys(("domain", "subject_suspicious"), 4),
    **dict.fromkeys(("canonicalisable_obfuscation", "malformed_identifier"), 3),
}


def test_all_pairs_of_the_paper_are_there_and_differ() -> None:
    categories = MEASURE["paper"]()
    assert {name: len(pairs) for name, pairs in categories.items()} == PAIRS
    assert (len(PAIRS), sum(PAIRS.values())) == (19, 122)
    for name, pairs in {**categories, **MEASURE["beyond"](), **MEASURE["shown"]()}.items():
        write = MEASURE["FORMATS"]["a.json"]
        assert all((write(one) != write(other)) == (name != "alias_carryover") for one, other in pairs), name


@pytest.mark.parametrize(("mode", "most"), [(DEFAULT, 0.15), (STRICT_SYMBOLIC, 0.0)], ids=lambda value: str(value))
def test_distances_stay_within_their_bounds(mode: Mode, most: float) -> None:
    found = MEASURE["report"](mode)
    assert all(mean <= most for mean in found["paper"]["mean"].values())
    assert all(mean == 0 for mean in found["beyond"]["mean"].values())
    assert all(value == 0 for value in found["comments"].values())
    # it would see more: names and structure are told on purpose, and not in the strict mode
    told = set(found["shown"]["mean"].values())
    assert told == {0} if mode is STRICT_SYMBOLIC else min(told) > 0.5
    assert "the paper's operator" in MEASURE["page"](found)


def test_a_view_that_tells_lengths_is_found_out() -> None:
    found = MEASURE["measured"](MEASURE["beyond"](), Mode("lengths", lengths=True))
    assert found["lengths"]["a.json"] == 1
    assert found["equality_patterns"]["a.json"] == 1


def test_the_only_size_that_shows_is_that_of_the_view_itself() -> None:
    assert MEASURE["size"](DEFAULT) == 1
