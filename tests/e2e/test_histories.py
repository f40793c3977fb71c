"""A session that begins with the conversation of another one, or with one that was written."""

import pytest

from cmdc_runtime.messages import Message

TURN_S = 20.0


def systems(model):
    """Return the system messages of the latest request."""
    sent = model.requests[-1]["messages"]
    return [message["content"] for message in sent if message["role"] == "system"]


@pytest.mark.parametrize(
    ("options", "prompt", "is_kept"),
    [
        ({}, "You are Ada.", True),
        ({"system_prompt": "You are Grace."}, "You are Grace.", False),
        ({"prompt_mode": "none"}, "You are Ada.", True),
    ],
    ids=["taken", "replaced", "alone"],
)
def test_the_conversation_of_another_session_has_one_system_prompt(
    agent, scripted, options, prompt, is_kept
):
    """The other session's own prompt, without what its runtime added, or the one that is given."""
    first = agent(scripted("hello"), system_prompt="You are Ada.")
    first.run("Who are you?", timeout=TURN_S)
    model = scripted("still me")
    second = agent(model, messages=first.messages(), **options)
    second.run("And now?", timeout=TURN_S)
    (system,) = systems(model)
    roles = [message.role for message in second.messages()]

    assert system.startswith(prompt)
    assert ("You are Ada." in system) == is_kept
    assert system.count("You are an agent") == (0 if "prompt_mode" in options else 1)
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_a_written_system_message_is_the_prompt(agent, scripted):
    """Several are one, wherever they stand; nothing of the runtime's is lost."""
    model = scripted("yes")
    written = [
        Message.system("You are Ada."),
        Message.user("Hi."),
        Message.assistant("Hello."),
        Message.system("You like numbers."),
    ]
    agent(model, messages=written).run("Do you?", timeout=TURN_S)
    (system,) = systems(model)

    assert system.startswith("You are Ada.\n\nYou like numbers.\n\nYou are an agent")
