"""What is left out of a journal when a session is rebuilt, and that it stays left out."""

from typing import get_type_hints

import msgspec
import pytest

from cmdc_runtime.checkpoints import SCHEMA_VERSION
from cmdc_runtime.commands import AttachPlugin, AttachTools, Command, Prompt, ReplaceTools
from cmdc_runtime.errors import CheckpointUnreadable
from cmdc_runtime.heartbeats import RESUME_STEP, SNAPSHOT_STEP, greeting_step, packed_step
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packed_code import digest_of as packed_digest
from cmdc_runtime.wire.frames import MISPLACED
from workers.core import omissions
from workers.core.omissions import KILLED, digest_of, fold, is_left_out, read_records, set_aside
from workers.core.records import (
    ApprovalRequested,
    AttachedPlugin,
    AttachedTool,
    Compacted,
    Continued,
    CycleEnded,
    CycleStarted,
    MessageAdded,
    ModelChanged,
    PluginOrdered,
    PluginSetChanged,
    PromptQueued,
    SetAside,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    UserAnswered,
)
from workers.core.state import Memory, PluginFacts, ToolFacts

STARTED = CycleStarted(command_id="p-1", text="go", at_ms=1)
SAID = MessageAdded(message=Message(id="m-2", role="assistant", content="yes"))
ENDED = CycleEnded(command_id="p-1", outcome="finished")
HISTORY = (STARTED, SAID, ENDED)
NOT_FOLDED = object()
"""What the fold fails over, as over a bug of ours."""
DAMAGED = "the journal is damaged"


def nested(levels):
    value = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def row(record):
    return str(record.__struct_config__.tag), msgspec.msgpack.encode(record)


def read(*records, killing=()):
    steps = []
    found, new = read_records(map(row, records), frozenset(killing), steps.append)
    return found, new, steps


def test_a_sound_journal_is_read_whole():
    """Each step is reported before it is taken."""
    assert read(*HISTORY) == (HISTORY, (), [1, 2, 3])


def test_what_has_killed_is_left_out_and_named():
    """It is not even looked at; in its place stands a record that says nothing to the fold."""
    found, new, steps = read(*HISTORY, killing=[2])
    kind, body = row(SAID)

    assert new == (SetAside(digest=digest_of(body), what=kind, why=KILLED),)
    assert found == (STARTED, *new, ENDED)
    assert steps == [1, 3]


def test_what_was_left_out_once_stays_left_out():
    """Its name is in the journal, behind it, wherever the journal goes."""
    _, new, _ = read(*HISTORY, killing=[2])
    found, again, steps = read(*HISTORY, *new)

    assert again == ()
    assert found == (STARTED, *new, ENDED, *new)
    assert steps == [1, 3, 4]


def test_a_record_is_what_it_says_and_not_what_its_row_is_called():
    """A journal from elsewhere may call it otherwise."""
    rows = [("set_aside", row(STARTED)[1]), row(SAID)]

    assert read_records(rows, frozenset(), id) == ((STARTED, SAID), ())


def test_what_sets_aside_is_looked_for_by_the_name_of_its_row():
    """So that no other record is read twice."""
    reported = omissions.set_aside(*row(STARTED), KILLED)
    rows = [row(STARTED), ("said", row(reported)[1])]

    assert read_records(rows, frozenset(), id) == ((STARTED, reported), ())


def call(arguments):
    return Message(
        role="assistant", tool_calls=(ToolCall(call_id="c", name="x", arguments=arguments),)
    )


CALLS = OpeningCall(name="x", arguments=nested(70))
DEEP = {
    "arguments": MessageAdded(message=call(nested(300))),
    "just too deep": MessageAdded(message=call(nested(65))),
    "metadata": MessageAdded(message=Message(role="assistant", metadata=nested(70))),
    "result": ToolEnded(message=Message(role="tool_result", call_id="c", metadata=nested(70))),
    "approval": ApprovalRequested(
        id="a", call_id="c", tool="x", args=nested(70), requested_at_ms=1
    ),
    "answer": UserAnswered(ref="r", response=nested(70)),
    "order": PluginOrdered(name="x", payload=nested(70)),
    "cycle": CycleStarted(command_id="p", text="go", at_ms=1, metadata=nested(70)),
    "prompt": PromptQueued(command_id="p", text="go", metadata=nested(70)),
    "opening call": CycleStarted(command_id="p", text="go", at_ms=1, call=CALLS),
    "queued call": PromptQueued(command_id="p", text="go", call=CALLS),
}


@pytest.mark.parametrize("record", DEEP.values(), ids=DEEP)
def test_what_an_older_program_took_is_left_out_where_it_is_too_deep(record):
    """It would kill at the first look at it, long after the fold."""
    found, new, _ = read(STARTED, record)

    assert [one.why for one in new] == ["it nests more than 64 levels deep"]
    assert found == (STARTED, *new)


def test_as_deep_as_may_be_is_taken():
    """The rule is that for new values."""
    record = MessageAdded(message=call(nested(64)))

    assert read(record) == ((record,), (), [1])


def test_what_no_decoder_takes_is_left_out():
    """Deeper than the stack; no process can have written it with its own encoder."""
    deep = msgspec.Raw(b"\x81\xa1a" * 100_000 + b"\x01")
    said = {"record": "said", "message": {"role": "assistant", "metadata": deep}}
    bodies = [("said", msgspec.msgpack.encode(said))]
    _, new = read_records(bodies, frozenset(), lambda _step: None)

    assert [one.what for one in new] == ["said"]


def body_of(**fields):
    return msgspec.msgpack.encode(fields)


DEEP_OPTIONS = ModelChanged(model="x:m", provider_opts=nested(96))
NO_UTF8 = ("it cannot be read: not a record", "it cannot be read: Invalid UTF-8")
"""From 0.23 on msgspec says it itself."""
MALFORMED = {
    "nothing": ("said", b"", "said", "it cannot be read: Input data was truncated"),
    "no type": ("said", b"\xc1", "said", "it cannot be read: MessagePack data is malformed"),
    "no map": ("said", b"\x91\x01", "said", "it cannot be read: Expected `object`, got `array`"),
    "cut": ("said", row(SAID)[1][:-1], "said", "it cannot be read: Input data was truncated"),
    "two": ("said", row(SAID)[1] * 2, "said", "it cannot be read: MessagePack data is malformed"),
    "half": ("said", body_of(record="said"), "said", "it cannot be read: Object missing required"),
    "no utf-8": ("said", b"\x81\xa6record\xa4s\xffid", "said", NO_UTF8),
    "other kind": ("said", body_of(record="tomorrow"), "said", "it cannot be read: Invalid value"),
    "no kind": ("tomorrow", body_of(record=5), "record", "it cannot be read: Expected `str`"),
    "no row": ("", body_of(record=""), "record", "it cannot be read: Invalid value ''"),
    "cut anew": ("tomorrow", body_of(record="tomorrow")[:-1], "record", "it cannot be read: Inp"),
    "own name": ("set_aside", body_of(record="set_aside"), "set_aside", "it cannot be read: Obj"),
    "long": ("said", body_of(record="x" * 9_000), "said", "it cannot be read: Invalid value 'xx"),
    "too deep": (*row(DEEP_OPTIONS), "model_changed", "it nests more than 96 levels deep"),
}


@pytest.mark.parametrize(("kind", "body", "what", "why"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_record_is_left_out(kind, body, what, why):
    """It is named by its row, where that names a kind, and the decoder says what is wrong."""
    rows = [row(STARTED), (kind, body), row(ENDED)]
    found, (reported,) = read_records(rows, frozenset(), lambda _step: None)
    again, new = read_records([*rows, row(reported)], frozenset(), lambda _step: None)

    assert found == (STARTED, reported, ENDED)
    assert (reported.what, reported.digest) == (what, digest_of(body))
    assert reported.why.startswith(why)
    assert len(reported.why) <= 500
    assert (again, new) == ((STARTED, reported, ENDED, reported), ())


def test_how_deep_a_record_may_nest_is_one_number():
    """Whatever the decoder takes of it where the process stands: the rule is on the bytes."""
    as_deep = ModelChanged(model="x:m", provider_opts=nested(95))

    assert read(as_deep) == ((as_deep,), (), [1])
    for levels in (96, 200, 900):
        (_, body) = row(ModelChanged(model="x:m", provider_opts=nested(levels)))
        _, (reported,) = read_records([("model_changed", body)], frozenset(), lambda _step: None)
        assert reported.why == "it nests more than 96 levels deep"


def test_many_lists_are_not_deep():
    """They stand beside one another."""
    wide = UserAnswered(ref="r", response=[[], {}] * 200)

    assert read(wide) == ((wide,), (), [1])


def test_a_record_of_a_newer_program_is_an_error():
    """Whatever it says may matter, and that program can read it."""
    body = msgspec.msgpack.encode({"record": "from_tomorrow"})
    with pytest.raises(msgspec.DecodeError, match="'from_tomorrow', which this program does not"):
        read_records([("from_tomorrow", body)], frozenset(), lambda _step: None)


def test_a_snapshot_that_cannot_be_read_is_left_out():
    """With the decoder's words; one of a newer program is an error as ever."""
    error = CheckpointUnreadable("the snapshot is damaged: so it is")
    newer = msgspec.msgpack.encode({"schema_version": SCHEMA_VERSION + 1})

    reported = omissions.damage_of(b"\xc1", error)
    assert is_left_out(b"\xc1", (reported,))
    assert reported.why == "it cannot be read: the snapshot is damaged: so it is"
    with pytest.raises(CheckpointUnreadable):
        omissions.damage_of(newer, error)


def test_a_fold_without_what_it_leans_on_leaves_that_out_as_well():
    """A cycle that never began cannot end."""
    _, new, _ = read(*HISTORY, killing=[1])
    steps = []
    memory, leaning = fold(Memory(), (*new, SAID, ENDED), steps.append)

    assert memory.cycle is None
    assert [one.what for one in leaning] == ["cycle_ended"]
    assert leaning[0].why == "it leans on what was set aside: a cycle ended, and none had begun"
    assert steps == [2, 3]


def test_a_fold_of_a_whole_history_hides_no_bug():
    """Nothing is left out, so nothing may fail."""
    with pytest.raises(KeyError):
        fold(Memory(), (NOT_FOLDED,), lambda _step: None)


# fmt: off
CONTRADICTING = {
    "cycle": (ENDED, "a cycle ended, and none had begun"),
    "call": (ToolEnded(message=SAID.message), "a call ended, and it does not say which"),
    "summary": (Compacted(evicted=2, summary=SAID.message, usage=TokenUsage()),
                "2 messages were compacted, and there were 1"),
    "order": (PluginOrdered(name="x", payload={}), "there is no kernel emit 'x'"),
    "payload": (PluginOrdered(name="decide_approval", payload=5),
                "there is no such kernel emit decide_approval: Expected `object`, got `int`"),
}
# fmt: on


@pytest.mark.parametrize(("record", "why"), CONTRADICTING.values(), ids=CONTRADICTING)
def test_what_cannot_be_after_what_is_before_it_is_left_out(record, why):
    """The journal is damaged, and it says so; the fold goes on as if the record were not there."""
    memory, (reported,) = fold(Memory(), (SAID, record, STARTED), lambda _step: None)

    assert reported.digest == digest_of(row(record)[1])
    assert reported.why.startswith(
        f"{DAMAGED}, since this cannot be after what is before it: {why}"
    )
    assert memory == fold(Memory(), (SAID, STARTED), lambda _step: None)[0]


def test_what_contradicts_is_reported_once():
    """Its name is in the journal; the next process leaves it out by that."""
    _, new = fold(Memory(), (ENDED, STARTED), lambda _step: None)
    found, again, _ = read(ENDED, STARTED, *new)

    assert (found, again) == ((*new, STARTED, *new), ())
    assert fold(Memory(), found, lambda _step: None)[1] == ()
    assert fold(Memory(), (ENDED, STARTED, *new), lambda _step: None)[1] == ()  # other bytes of it


def test_behind_what_contradicts_nothing_is_a_bug():
    """What leans on it is left out with it."""
    _, new = fold(Memory(), (ENDED, PluginOrdered(name="x", payload={})), lambda _step: None)

    assert [one.why.partition(":")[0] for one in new] == [
        "the journal is damaged, since this cannot be after what is before it",
        "it leans on what was set aside",
    ]


def test_behind_it_nothing_that_fails_ends_the_fold():
    """Whatever it fails with."""

    class Strange(msgspec.Struct, tag="strange"):
        """What no fold takes."""

    _, (_, reported) = fold(Memory(), (ENDED, Strange()), lambda _step: None)

    assert reported.why == "it leans on what was set aside: KeyError"


def test_a_row_out_of_place_is_named():
    """What it holds is not read: its number may be another's."""
    (found,), new = read_records([(MISPLACED, row(SAID)[1])], frozenset(), lambda _step: None)

    assert new == (found,)
    assert found.why == omissions.OUT_OF_PLACE


def test_rows_that_are_gone_are_named_in_their_place():
    """Once; what leans on them is left out."""
    rows = [row(SAID), ("-", b"5 to 7"), row(ENDED)]
    found, (reported,) = read_records(rows, frozenset(), lambda _step: None)
    memory, leaning = fold(Memory(), found, lambda _step: None)
    _, again = read_records([*rows, row(reported)], frozenset(), lambda _step: None)

    assert found == (SAID, reported, ENDED)
    assert reported.what == "record"
    assert reported.why == f"{DAMAGED}: of its rows, records and commands, these are gone: 5 to 7"
    assert memory.messages == (SAID.message,)
    assert [one.what for one in leaning] == ["cycle_ended"]
    assert again == ()


def test_calls_of_an_answer_that_is_left_out_change_nothing():
    """Their records are there; the conversation goes on without them."""
    started = ToolStarted(call_id="c", at_ms=1)
    result = ToolEnded(message=Message.tool_result("c", "done"))
    _, new, _ = read(STARTED, MessageAdded(message=call({})), started, result, killing=[2])
    memory, _ = fold(Memory(), (STARTED, *new, started, result, SAID, ENDED), lambda _step: None)

    assert [message.role for message in memory.messages] == ["user", "assistant"]
    assert memory.calls == ()


def test_a_snapshot_is_named_by_what_it_says():
    """A later one is another."""
    reported = set_aside(omissions.SNAPSHOT, b"state", KILLED)

    assert is_left_out(b"state", (STARTED, reported))
    assert not is_left_out(b"other", (STARTED, reported))
    assert not is_left_out(b"state", (set_aside("said", b"state", KILLED),))
    assert SNAPSHOT_STEP == 0


TRAP = Packed(kind="value", label="trap", data=b"deadly", python=(3, 11))
FINE = Packed(kind="ref", label="fine", ref="fine")


def attached(name, packed):
    return AttachedTool(name=name, is_repeatable=True, isolation="task", packed=packed)


BOTH = Memory(
    tools=(ToolFacts("trap", packed=TRAP), ToolFacts("fine", packed=FINE)),
    always_approved=frozenset({("trap", ""), ("fine", "")}),
)


def test_packed_code_kills_by_what_it_holds():
    """Wherever it stands, and whatever stands before it."""
    steps = frozenset({packed_step(packed_digest(TRAP))})

    assert omissions.kills(TRAP, steps)
    assert not omissions.kills(FINE, steps)
    assert not omissions.kills(TRAP, frozenset())


BRINGING = {
    "tools": AttachTools(tools=(FINE, TRAP)),
    "table": ReplaceTools(tools=(TRAP,)),
    "plugin": AttachPlugin(plugin=TRAP),
}


@pytest.mark.parametrize("command", BRINGING.values(), ids=BRINGING)
def test_a_command_brings_what_has_killed(command):
    """Whichever command it is and wherever in it the packed code stands."""
    steps = frozenset({packed_step(packed_digest(TRAP))})

    assert omissions.killing_code(command, steps) == TRAP
    assert omissions.killing_code(command, frozenset({RESUME_STEP + 1})) is None
    assert omissions.killing_code(command, frozenset()) is None


def test_every_command_with_packed_code_is_among_these():
    """A new one is looked into as well."""
    hints = {one: get_type_hints(one).values() for one in Command.__subclasses__()}
    packed = {one for one, types in hints.items() if any("Packed" in str(kind) for kind in types)}

    assert packed == {type(command) for command in BRINGING.values()}


def test_a_command_without_packed_code_brings_nothing():
    """Texts and numbers are no code."""
    steps = frozenset({packed_step(packed_digest(TRAP))})

    assert omissions.killing_code(Prompt(text="go"), steps) is None
    assert omissions.killing_code(AttachTools(tools=(FINE,)), steps) is None


def test_a_tool_that_is_left_out_is_gone_from_the_memory():
    """With what was allowed of it; the memory knows it, so that a definition has none of it."""
    reported = omissions.set_tool_aside(TRAP, "trap", "the definition")
    memory, new = fold(BOTH, (reported,), lambda _step: None)

    assert (reported.what, reported.name) == ("tool", "trap")
    assert reported.why == "processes that opened it have died of it; it came with the definition"
    assert omissions.tools_left_out((STARTED, reported)) == {reported.digest} == memory.left_out
    assert [tool.name for tool in memory.tools] == ["fine"]
    assert memory.always_approved == {("fine", "")}
    assert new == ()


def test_a_fold_behind_a_tool_that_is_left_out_hides_no_bug():
    """No record leans on a tool."""
    reported = omissions.set_tool_aside(TRAP, "trap", "the definition")
    with pytest.raises(KeyError):
        fold(BOTH, (reported, NOT_FOLDED), lambda _step: None)


def test_a_tool_that_is_attached_again_is_there():
    """Who attaches it wants another try."""
    reported = omissions.set_tool_aside(TRAP, "trap", "the definition")
    again = ToolsChanged(attached=(attached("trap", TRAP),))
    memory, _ = fold(BOTH, (reported, again), lambda _step: None)

    assert [tool.name for tool in memory.tools] == ["fine", "trap"]


HEARS = frozenset({"session_start"})
DIED_AT_SESSION_START = Memory(
    plugins=(PluginFacts("deadly", HEARS, TRAP), PluginFacts("kind", HEARS, FINE)),
    tools=BOTH.tools,
)


def test_a_plugin_is_set_aside_by_what_it_does_when_it_is_greeted():
    """And not by what it did when it was opened, which is another step."""
    digest = packed_digest(TRAP)
    reported = omissions.session_starts_set_aside(
        DIED_AT_SESSION_START, frozenset({greeting_step(digest)})
    )

    assert [(one.what, one.name, one.digest) for one in reported] == [
        ("session_start", "deadly", digest)
    ]
    assert (
        omissions.session_starts_set_aside(DIED_AT_SESSION_START, frozenset({packed_step(digest)}))
        == ()
    )
    assert omissions.session_starts_set_aside(DIED_AT_SESSION_START, frozenset()) == ()


def test_a_plugin_without_packed_code_is_not_set_aside():
    """It is part of the program; who dies of it is not helped by leaving it out."""
    memory = Memory(plugins=(PluginFacts("ours", hooks=HEARS), *DIED_AT_SESSION_START.plugins))
    digest = packed_digest(TRAP)
    reported = omissions.session_starts_set_aside(memory, frozenset({greeting_step(digest)}))

    assert [one.name for one in reported] == ["deadly"]


def test_a_plugin_whose_greeting_is_left_out_is_there():
    """The memory knows which one, and nothing leans on it; attached again it has another try."""
    (reported,) = omissions.session_starts_set_aside(
        DIED_AT_SESSION_START, frozenset({greeting_step(packed_digest(TRAP))})
    )
    memory, new = fold(DIED_AT_SESSION_START, (reported,), lambda _step: None)
    attached_again = AttachedPlugin(name="deadly", hooks=HEARS, packed=TRAP)
    again, _ = fold(memory, (PluginSetChanged(attached=(attached_again,)),), lambda _step: None)

    assert (memory.plugins, memory.left_out, new) == (
        DIED_AT_SESSION_START.plugins,
        {reported.digest},
        (),
    )
    assert omissions.tools_left_out((reported,)) == frozenset()
    assert again.left_out == frozenset()
    with pytest.raises(KeyError):  # a bug is none of its doing
        fold(DIED_AT_SESSION_START, (reported, NOT_FOLDED), lambda _step: None)


def test_what_brought_a_tool_is_named():
    """The record, or else the state that was saved before the first one."""
    changed = ToolsChanged(attached=(attached("trap", TRAP),))
    resumed = Continued(resumption="r", tools=(attached("trap", TRAP),))
    bare = Continued(resumption="r")

    assert omissions.came_with(TRAP, (STARTED, changed)) == "the record tools_changed"
    assert omissions.came_with(TRAP, (bare, resumed)) == "the record continued"
    assert omissions.came_with(FINE, (STARTED, changed, resumed, bare)) == "the saved state"
