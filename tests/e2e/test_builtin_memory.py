"""Memory files in running sessions: shown, shown anew, and added to before a compaction."""

import cmdc_runtime as cmdc
from cmdc_runtime import events, plugins
from cmdc_runtime.messages import Message
from cmdc_runtime.testing import Error, Text, ToolCalls, ToolUse

TURN_S = 20.0
SMALL = "openai/gpt-4"
"""A model whose window litellm's table knows, 8192 tokens."""
FILLER = "and so on, and on. " * 125


def systems(model):
    """Return the system prompt of each request."""
    return [request["messages"][0]["content"] for request in model.requests]


def small_session(agent, model, folder, **options):
    """Make a session that is due for a compaction."""
    _, opts = model.model_source()
    roles = ("user", "assistant")
    old = [Message(role=roles[n % 2], content=f"{n} {FILLER}") for n in range(12)]
    return agent(SMALL, provider_opts=opts, messages=old, working_dir=str(folder), **options)


def heard(session, cycle_of):
    """Send a prompt and return the events of its cycle."""
    stream = session.subscribe()
    session.prompt("And now?")
    return [one.event for one in cycle_of(stream)]


def test_a_memory_file_is_in_the_system_prompt_as_it_is_now(agent, scripted, tmp_path):
    """Also once the model itself has changed it."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    write = ToolUse("write_file", {"path": "AGENTS.md", "content": "Use spaces.\n"})
    model = scripted(ToolCalls(write), "done")
    session = agent(
        model,
        tools=[cmdc.tools.WriteFile],
        plugins=[plugins.MemoryLoader],
        working_dir=str(tmp_path),
    )
    session.run("Go.", timeout=TURN_S)
    before, after = systems(model)

    assert '<agent_memory name="AGENTS.md">\nUse tabs.\n</agent_memory>' in before
    assert '<agent_memory name="AGENTS.md">\nUse spaces.\n</agent_memory>' in after
    assert "Use tabs." not in after


def test_facts_outlive_a_compaction(agent, scripted, cycle_of, tmp_path):
    """A model extracts them first, and the next request has them in its system prompt."""
    (tmp_path / "AGENTS.md").write_text("Mine.\n")
    model = scripted(Text("- The user counts.\n"), "A summary.", "done")
    both = [plugins.MemoryLoader, plugins.MemoryFlush(max_facts=3)]
    found = heard(small_session(agent, model, tmp_path, plugins=both), cycle_of)
    [flushed] = [one for one in found if getattr(one, "name", "") == "memory_flushed"]
    asked = model.requests[0]["messages"]

    assert flushed.payload["facts"] == ["The user counts."]
    assert "user: 0 and so on" in asked[-1]["content"]
    assert "at most 3 facts" in asked[-1]["content"]
    assert (tmp_path / "AGENTS.md").read_text().endswith("- The user counts.\n")
    assert [event.trigger for event in found if isinstance(event, events.ConversationCompacted)]
    assert "- The user counts.\n</agent_memory>" in systems(model)[-1]
    model.assert_complete()


def test_a_flush_that_fails_prevents_no_compaction(agent, scripted, cycle_of, tmp_path):
    """Observers hear why there are no facts."""
    model = scripted(Error(401, "No key."), "A summary.", "done")
    found = heard(small_session(agent, model, tmp_path, plugins=[plugins.MemoryFlush]), cycle_of)
    [failed] = [one for one in found if getattr(one, "name", "") == "memory_flush_failed"]

    assert "No key." in failed.payload["reason"]
    assert [event.trigger for event in found if isinstance(event, events.ConversationCompacted)]
    assert not (tmp_path / "AGENTS.md").exists()
    model.assert_complete()
