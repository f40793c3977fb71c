"""What a client heard of its session, beside how the session stands and what it remembers."""

import msgspec
import pytest

from cmdc_runtime import events
from cmdc_runtime.commands import Status
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Down, Normal
from scripts.soak.checks import end_problems
from scripts.soak.client_view import ClientView
from scripts.soak.recall import OF_A_PROCESS, Recalled, differences

USED = TokenUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
MESSAGE = Message(id="m-1", role="assistant", content="yes")
TODOS = ({"id": "1"},)
ASKED = events.ApprovalRequired(
    id="a-1",
    tool="pay",
    args={},
    hint="",
    requested_at_ms=1,
    session_id="s",
    call_id="c",
    hold=True,
)


def recalled(incarnation=1, **memory):
    """Return a session as it was created, but for ``memory``."""
    known = {
        "model": "m",
        "tools_loaded": ["look"],
        "plugins_loaded": {"p": {}},
        "todos": [],
        "spawns": 0,
        "outcomes": [],
        "children": [],
        "pid": incarnation,
    }
    status = Status(state="idle", session_id="s", model="m", incarnation=incarnation)
    return Recalled(status, (MESSAGE,), {**known, **memory})


def books_of(*happened):
    books = ClientView("m", ["look"], ["p"])
    for event in happened:
        books.feed(event)
    return books


def test_a_session_that_stands_as_its_client_heard_has_no_problem():
    """Nothing happened."""
    assert books_of().problems(recalled()) == []


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (events.ModelSwitched(from_="m", to="n"), "the model"),
        (events.ToolAttached(name="extra"), "the set of tools"),
        (events.ToolDetached(name="look"), "the set of tools"),
        (events.PluginAttached(name="q"), "the set of plugins"),
        (events.PluginDetached(name="p"), "the set of plugins"),
        (events.TodoChange(session_id="s", todos=TODOS), "the list of todos"),
        (ASKED, "the set of approvals"),
        (events.ResponseComplete(message=MESSAGE, usage=USED), "the usage"),
        (events.ResponseComplete(message=MESSAGE), "the count of turns"),
        (events.PluginModelCall(plugin="p", model="m", usage=USED), "the usage"),
        (events.AgentEnd(messages=(), usage=USED, command_id="c-1"), "the ends of cycles"),
        (events.AgentAbort(command_id="c-1"), "the ends of cycles"),
        (events.PromptDropped(text="", command_id="c-1"), "the ends of cycles"),
        (
            events.SubagentStart(
                call_id="c", subagent_type="t", child_session_id="s.1", description=""
            ),
            "the count of subagents",
        ),
    ],
)
def test_what_was_heard_and_is_not_there_is_found(event, what):
    """Each event that changes how the session stands, where it has changed nothing."""
    assert what in " ".join(books_of(event).problems(recalled()))


def test_an_approval_ends_with_its_decision_or_with_the_call_that_was_held():
    """Then nobody waits for it."""
    end = events.ToolExecutionEnd(name="pay", call_id="c", ok=True, text="")

    assert books_of(ASKED, events.ToolApproved(approval_id="a-1")).problems(recalled()) == []
    assert books_of(ASKED, end).problems(recalled()) == []


def down(incarnation, *, restarting=True):
    return Down(
        ref="r", session_id="s", reason=Normal(), incarnation=incarnation, restarting=restarting
    )


@pytest.mark.parametrize(
    ("downs", "first", "count"),
    [
        ([down(1), down(2), down(3, restarting=False)], 1, 0),
        ([down(2), down(3, restarting=False)], 0, 0),
        ([down(2), down(3, restarting=False)], 1, 1),
        ([down(1), down(3, restarting=False)], 1, 1),
        ([down(1), down(1), down(2), down(3, restarting=False)], 1, 1),
        ([down(1), down(2)], 1, 1),
        ([down(1), down(2), down(3)], 1, 1),
        ([], 1, 1),
    ],
)
def test_each_end_is_reported_once_and_the_last_one_as_such(downs, first, count):
    """Of incarnations up to the third; 0: the monitor may have come later than the first."""
    assert len(end_problems(downs, first, 3)) == count


def test_a_session_that_goes_on_from_a_saved_state_begins_with_what_that_had():
    """Its usage, its turns and the cycle that was finished."""
    books = books_of()
    before = recalled(outcomes=[{"command_id": "c-1", "outcome": "finished"}])
    status = msgspec.structs.replace(before.status, token_usage=USED, turns=1)
    books.go_on_from(status, "c-1")

    assert books.problems(Recalled(status, before.messages, before.memory)) == []


def test_a_rebuilt_memory_that_is_the_same_has_no_difference():
    """But for what belongs to a process or a moment."""
    after = recalled(2, **dict.fromkeys(OF_A_PROCESS, "another"))

    assert differences(recalled(), after) == []


def test_whatever_a_rebuilt_memory_lacks_is_found():
    """Each of its fields, those of the status and the conversation, and a process of before."""
    before, after = recalled(todos=list(TODOS), usage={"total_tokens": 3}), recalled(2)
    status = msgspec.structs.replace(after.status, turns=4)

    assert [one.split(" is not ")[0] for one in differences(before, after)] == [
        "the rebuilt todos",
        "the rebuilt usage",
    ]
    assert "turns" in " ".join(differences(recalled(), Recalled(status, (MESSAGE,), after.memory)))
    assert "conversation" in " ".join(
        differences(recalled(), Recalled(after.status, (), after.memory))
    )
    assert "incarnation 1 follows 1" in " ".join(differences(recalled(), recalled()))
