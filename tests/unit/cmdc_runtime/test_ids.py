"""Identifiers: what may name a session, and that new ones are new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime import ids

MAKERS = (ids.new_session_id, ids.new_command_id, ids.new_message_id, ids.new_monitor_ref)


def test_new_ids_are_new_and_of_their_kind():
    """No two alike, and the first letter says what an id in a log is."""
    made = [make() for make in MAKERS for _ in range(1_000)]

    assert len(set(made)) == len(made)
    assert {one.partition("-")[0] for one in made} == {"s", "c", "m", "r"}
    assert len({ids.new_worker_id(1) for _ in range(1_000)}) == 1_000
    assert ids.new_worker_id(7).startswith("w-7-")


def test_a_new_session_id_is_a_session_id():
    """What is made here is accepted everywhere."""
    assert ids.is_session_id(ids.new_session_id())


@pytest.mark.parametrize("text", ["a", "7", "a" * 128, "user:42@host_1.x-y"])
def test_names_that_people_choose_are_accepted(text):
    """Words, numbers, addresses."""
    assert ids.is_session_id(text)


@pytest.mark.parametrize(
    "text", ["", "a" * 129, "-a", ".a", "_supervisor", "a b", "a/b", "a\0", "a\n", "é", "a\u0661"]
)
def test_names_that_could_be_mistaken_are_refused(text):
    """Paths, topics, flags, hidden files and what only looks like a letter."""
    assert not ids.is_session_id(text)


@pytest.mark.parametrize("sign", "._:@-")
def test_the_rule_in_words_says_what_may_come_first(sign):
    """A sign that may stand within an id is refused at its beginning, and the words say so."""
    assert sign in ids.SESSION_ID_RULE
    assert ids.is_session_id(f"a{sign}")
    assert not ids.is_session_id(f"{sign}a")
    assert ids.SESSION_ID_RULE.endswith("the first a letter or a digit")


@given(st.text(max_size=8))
def test_a_session_id_is_printable_ascii(text):
    """Whatever is accepted can stand in a topic, a path and a log."""
    assert not ids.is_session_id(text) or (text.isascii() and text.isprintable() and text)
