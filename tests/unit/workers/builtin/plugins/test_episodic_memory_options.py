"""The options of the episodic memory: defaults, and what is refused before a session starts."""

import sys

import pytest

from cmdc_runtime import stores
from cmdc_runtime.errors import InvalidOptions
from workers.builtin.plugins import episodic_memory
from workers.builtin.plugins.episodic_memory import EpisodicMemory


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "option 'memory_store' is missing"),
        ({"memory_store": "memory.db"}, "'memory_store': Expected `object`, got `str`"),
        ({"memory_store": {"kind": "redis"}}, "'memory_store': Invalid value 'redis'"),
        ({"memory_store": {"kind": "sqlite"}}, "missing required field `path`"),
        ({"memory_store": {"kind": "sqlite", "path": "a/"}}, "path must be that of a file"),
        ({"top_k": 0}, "'top_k': Expected `int` >= 1"),
        ({"top_k": 21}, "'top_k': Expected `int` <= 20"),
        ({"max_episodes_per_user": 0}, "'max_episodes_per_user': Expected `int` >= 1"),
        ({"max_episodes_per_user": 5001}, "'max_episodes_per_user': Expected `int` <= 5000"),
        ({"require_user_id": 1}, "'require_user_id': Expected `bool`"),
        ({"judge_fn": "no_such_module:judge"}, "No module named 'no_such_module'"),
        ({"judge_fn": "operator:judge"}, "has no attribute 'judge'"),
        ({"judge_fn": "math:pi"}, "judge_fn must be a function, got 3.14"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Each with what would have been right."""
    given = {"memory_store": stores.InMemory()} if options and "memory_store" not in options else {}
    with pytest.raises(InvalidOptions, match=problem):
        EpisodicMemory(**given, **options)


def test_a_store_whose_library_is_missing_is_refused(monkeypatch):
    """Before the session starts, with the way out."""
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(InvalidOptions, match=r"pip install 'cmdc-runtime\[vec\]'"):
        EpisodicMemory(memory_store=stores.Vector(path="memory.db"))


def test_defaults():
    """Three episodes of a hundred, for users and others."""
    config = EpisodicMemory(memory_store=stores.InMemory()).config

    assert (config.top_k, config.max_episodes_per_user) == (3, 100)
    assert (config.judge_fn, config.require_user_id) == (None, False)
    assert episodic_memory.TURNS_MIN == 2
