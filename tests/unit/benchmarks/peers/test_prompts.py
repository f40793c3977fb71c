"""A prompt says how its answer comes, and the server reads it; what came before it is counted."""

import pytest

from benchmarks.peers.model_server import spoken
from benchmarks.peers.prompts import order_in, prompt_for


def test_what_a_prompt_orders_is_read_back():
    """Wherever it stands in the text."""
    assert order_in(f"Well. {prompt_for(300, 20)}") == (300, 0.02)
    assert order_in(prompt_for(5)) == (5, 0.0)


def test_a_prompt_without_an_order_is_refused():
    """An agent that changes its prompts would be measured at something else."""
    with pytest.raises(ValueError, match="no order in the prompt 'hi'"):
        order_in("hi")


def test_messages_before_the_last_prompt_are_the_history():
    """What a system prompt says is none, nor what is said behind the prompt."""
    messages = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "half an answer"},
    ]

    assert spoken(messages) == (2, "two")
    assert spoken(messages[:2]) == (0, "one")


def test_a_request_without_a_prompt_is_refused():
    """There is nothing to answer."""
    with pytest.raises(ValueError, match="without a prompt"):
        spoken([{"role": "system", "content": "be short"}])
