"""Memory in real sessions: files by option, folders that are worked in, stores of applications."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0


def systems(model):
    """Return the system prompt of each request."""
    return [request["messages"][0]["content"] for request in model.requests]


def kill(session):
    """End the session's process as the kernel does where memory is short."""
    os.kill(session.agent_pid(), signal.SIGKILL)


def test_memory_files_and_those_of_folders_outlive_a_kill(agent, scripted, tmp_path):
    """What the option names is shown at once, a folder's when a tool works there, and from then."""
    (tmp_path / "src").mkdir()
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "src" / "AGENTS.md").write_text("Use spaces.")
    (tmp_path / "src" / "x.py").write_text("x = 1\n")
    model = scripted(ToolCalls(ToolUse("read_file", {"path": "src/x.py"})), "one", "two")
    session = agent(
        model, memory=["AGENTS.md"], tools=[cmdc.tools.ReadFile], working_dir=str(tmp_path)
    )
    session.run("Go.", timeout=TURN_S)
    kill(session)
    session.run("And now?", timeout=TURN_S)
    before, after, later = systems(model)

    assert "Use tabs." in before
    assert "Use spaces." not in before
    assert after.index("Use tabs.") < after.index('name="src/AGENTS.md"')
    assert later == after


def test_a_plugin_that_would_say_the_same_is_refused(scripted):
    """Of the option and the plugin one is enough; all that is wrong is reported at once."""
    with pytest.raises(InvalidOptions) as caught:
        cmdc.create_agent(
            model=scripted(),
            memory=["AGENTS.md"],
            skills_dirs=["s"],
            plugins=[cmdc.plugins.MemoryLoader, cmdc.plugins.Skills],
        )

    assert [one.partition(":")[0] for one in caught.value.problems] == ["memory", "skills_dirs"]


@pytest.mark.parametrize("kind", [cmdc.stores.Sqlite, cmdc.stores.Vector])
def test_a_store_is_the_applications_own_and_outlives_a_kill(agent, scripted, tmp_path, kind):
    """A tool of a session keeps, the session dies at once; each user finds what is theirs."""
    reference = kind(path=str(tmp_path / "memory.db"))

    @cmdc.tool(effects="idempotent", isolation="thread")
    def remember(text: str, *, context: cmdc.Context) -> str:
        """Keep a text for good, and die."""
        user = context.user_data["user_id"]
        reference.open(context.working_dir).store(
            context.call_id, {"content": text}, namespace=user
        )
        return "kept"

    for user, text in (("ann", "The red ship sails."), ("bob", "The red house stands.")):
        model = scripted(ToolCalls(ToolUse("remember", {"text": text})), "done", "again")
        session = agent(
            model, tools=[remember], user_data={"user_id": user}, working_dir=str(tmp_path)
        )
        session.run("Go.", timeout=TURN_S)
        kill(session)
        assert session.run("Still there?", timeout=TURN_S).text == "again"
    store = reference.open()

    for user, text in (("ann", "The red ship sails."), ("bob", "The red house stands.")):
        [found] = store.search("red", namespace=user)
        [like] = store.similarity_search("a red thing", namespace=user, limit=5)
        assert found.content == like.content == text
    assert store.search("ship", namespace="bob") == ()
