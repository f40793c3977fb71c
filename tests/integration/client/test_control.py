"""The calls that control a session, against a peer that speaks the daemon's frames."""

import asyncio

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachTools,
    AwaitCycle,
    CycleResult,
    DetachTools,
    GetStatus,
    Prompt,
    Reject,
    ReplaceTools,
    Steer,
    SteerReceipt,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.testing import ScriptedModel


@cmdc.tool
def local(text: str) -> str:
    """Return it; this module cannot be imported elsewhere."""
    return text


def opened(_command, frame):
    """Answer an approval that opened a cycle."""
    return frame.id


def done(_command, _frame):
    """Answer what returns nothing."""
    return True


@pytest.fixture
def client(peer):
    peer.answers[AwaitCycle] = CycleResult(outcome="finished", text="done")
    peer.answers[Prompt] = lambda _command, frame: cmdc.PromptReceipt(
        queued=False, command_id=frame.id
    )
    with cmdc.Client(peer.directory) as found:
        yield found


def awaited(peer):
    """Return whose end the latest ``collect_reply`` waited for."""
    return peer.of(AwaitCycle)[-1].prompt_id


# --- which cycle is waited for ----------------------------------------------------------------


@pytest.mark.parametrize("is_opened", [True, False], ids=["idle", "busy"])
def test_steering_of_an_idle_session_is_waited_for(is_opened, peer, client):
    """``collect_reply`` waits for a steering that became a prompt, else for the prompt before."""
    peer.answers[Steer] = lambda _command, frame: SteerReceipt(ref=frame.id, opened=is_opened)
    prompted = client.prompt("s1", "go").command_id
    ref = client.steer("s1", "left")
    reply = client.collect_reply("s1")

    assert reply == "done"
    assert awaited(peer) == (ref if is_opened else prompted)
    assert peer.of(Steer) == [Steer(text="left", scope="session")]


@pytest.mark.parametrize("kind", [Approve, Reject], ids=["approve", "reject"])
@pytest.mark.parametrize("answer", [opened, done], ids=["idle", "busy"])
def test_cycle_of_a_decision_is_waited_for(kind, answer, peer, client):
    """``collect_reply`` waits for the cycle that a decision opened, else for the prompt before."""
    peer.answers[kind] = answer
    prompted = client.prompt("s1", "go").command_id
    returned = (client.approve if kind is Approve else client.reject)("s1", "a-1")
    client.collect_reply("s1")
    (decision,) = peer.ids_of(kind)

    assert returned is None
    assert awaited(peer) == (decision if answer is opened else prompted)


# --- what is sent -----------------------------------------------------------------------------


def test_decisions_carry_their_arguments(peer, client):
    """What the caller says about a decision is what the agent hears."""
    peer.answers |= {Approve: done, Reject: done, UserRespond: done, Abort: done}
    client.approve("s1", "a-1", auto_resume=False, kind="approve_always")
    client.reject("s1", "a-2", auto_resume=True)
    client.user_respond("s1", "q-1", ["red", {"shade": 3}])
    client.abort("s1", kill_tools="none", children=False)

    assert peer.of(Approve) == [
        Approve(approval_id="a-1", auto_resume=False, kind="approve_always")
    ]
    assert peer.of(Reject) == [Reject(approval_id="a-2", auto_resume=True)]
    assert peer.of(UserRespond) == [UserRespond(ref="q-1", response=["red", {"shade": 3}])]
    assert peer.of(Abort) == [Abort(kill_tools="none", children=False)]


@pytest.mark.parametrize(
    ("tools", "says_so"),
    [(["read_file"], False), (["read_file", local], True)],
    ids=["by name", "by value"],
)
def test_code_by_value_is_declared(tools, says_so, peer, client):
    """The daemon opens no command, so the envelope says that one carries code."""
    declared = []

    def attached(command, frame):
        declared.append(frame.carries_code)
        return tuple(tool.label for tool in command.tools)

    def replaced(command, frame):
        return cmdc.ToolsDiff(attached=attached(command, frame), detached=("old",))

    peer.answers |= {AttachTools: attached, ReplaceTools: replaced}
    names = client.attach_tools("s1", tools)
    diff = client.replace_tools("s1", tools)
    client.attach_tool("s1", tools[-1])

    assert declared == [says_so] * 3
    assert (diff.attached, diff.detached) == (tuple(names), ("old",))
    assert [one.single for one in peer.of(AttachTools)] == [False, True]


def test_detached_names_come_back(peer, client):
    """A batch returns the names, one tool nothing."""
    peer.answers[DetachTools] = lambda command, _frame: command.names

    assert client.detach_tools("s1", ["x", "y"]) == ["x", "y"]
    assert client.detach_tool("s1", "x") is None


def test_model_object_is_a_model(peer, client):
    """A scripted model is switched to as it is started with: its address goes along."""
    peer.answers[SwitchModel] = done
    with ScriptedModel(["unused"]) as model:
        name, opts = model.model_source()
        client.switch_model("s1", model)
        client.switch_model("s1", "openai:other")

    assert peer.of(SwitchModel) == [
        SwitchModel(model=name, provider_opts=opts),
        SwitchModel(model="openai:other", provider_opts=None),
    ]


# --- what is refused --------------------------------------------------------------------------


def test_unpackable_batch_is_not_sent(peer, client):
    """A tool that is none makes the whole batch fail before the session hears of it."""
    with pytest.raises(cmdc.ToolValidationFailed) as caught:
        client.attach_tools("s1", ["read_file", 5])
    with pytest.raises(cmdc.InvalidTool):
        client.attach_tool("s1", 5)

    assert caught.value.problems == [("tools[1]", "invalid_tool")]
    assert peer.of(AttachTools) == []


def test_refusal_of_a_batch_keeps_its_problems(peer, client):
    """What the session says is wrong arrives as pairs of name and reason."""
    problems = [("x", "already_attached"), ("y", "duplicate_in_list")]
    peer.answers[ReplaceTools] = cmdc.ToolValidationFailed(problems)

    with pytest.raises(cmdc.ToolValidationFailed) as caught:
        client.replace_tools("s1", ["m:x", "m:y", "m:y"])
    assert caught.value.problems == problems


@pytest.mark.parametrize(
    "error",
    [cmdc.SteeringRejected("not now"), cmdc.QueueFull("3 wait")],
    ids=["rejected", "full"],
)
def test_refused_steering_is_not_waited_for(error, peer, client):
    """A steering that was refused leaves the latest prompt what it was."""
    peer.answers[Steer] = error
    prompted = client.prompt("s1", "go").command_id
    with pytest.raises(type(error)):
        client.steer("s1", "left")
    client.collect_reply("s1")

    assert awaited(peer) == prompted


def test_wrong_steering_is_not_sent(peer, client):
    """Text and scope are looked at before anything goes out."""
    with pytest.raises(cmdc.InvalidText):
        client.steer("s1", " ")
    with pytest.raises(cmdc.UsageError, match="scope"):
        client.steer("s1", "left", scope="everywhere")

    assert peer.of(Steer) == []


# --- the other faces --------------------------------------------------------------------------


def test_hibernated_session_is_not_woken_for_its_status(peer, client):
    """A status asks no process to be started; what the daemon knows is the answer."""
    peer.add("s1", phase="hibernated", pid=None, incarnation=4)
    status = client.status("s1")

    assert (status.state, status.pid, status.incarnation) == ("hibernated", None, 4)
    assert [one.state for one in client.list_sessions()] == ["hibernated"]
    assert peer.of(GetStatus) == []


def test_coroutines_say_the_same(peer):
    """Every call of a session object sends what the call of a thread would send."""
    diff = cmdc.ToolsDiff(attached=("read_file",), detached=())
    peer.answers |= {
        Steer: lambda _command, frame: SteerReceipt(ref=frame.id, opened=True),
        Approve: opened,
        Reject: done,
        UserRespond: done,
        AttachTools: lambda command, _frame: tuple(tool.label for tool in command.tools),
        DetachTools: lambda command, _frame: command.names,
        ReplaceTools: diff,
        SwitchModel: done,
        Abort: done,
    }

    async def talk():
        async with cmdc.AsyncClient(peer.directory) as client:
            session = cmdc.AsyncSession("s1", client)
            return [
                await session.steer("left", scope="tree"),
                await session.approve("a-1", kind="approve_always"),
                await session.reject("a-2"),
                await session.user_respond("q-1", None),
                await session.attach_tool("read_file"),
                await session.attach_tools(["read_file"]),
                await session.detach_tool("read_file"),
                await session.detach_tools(["read_file"]),
                await session.replace_tools(["read_file"]),
                await session.switch_model("a:b", provider_opts={"temperature": 0}),
                await session.abort(children=False),
            ]

    ref, *rest = asyncio.run(talk())
    asked = [body for _, body in peer.received if type(body) in peer.answers]

    assert [ref] == peer.ids_of(Steer)
    assert rest == [None] * 4 + [["read_file"], None, ["read_file"], diff, None, None]
    assert [type(one) for one in asked] == [
        *(Steer, Approve, Reject, UserRespond, AttachTools, AttachTools),
        *(DetachTools, DetachTools, ReplaceTools, SwitchModel, Abort),
    ]
