"""``commands.md``: what each command does in each state, found out by giving it.

A case puts a command to the scene of every state. A case other than the usual one is shown where
it comes out differently. To show one more, add it to ``_OTHERS``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import structs

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachMcpServer,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    Command,
    DetachMcpServer,
    DetachPlugin,
    DetachTools,
    Prompt,
    Reject,
    Steer,
    SwitchModel,
)
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.extensions.hooks import BeforeSteering, kind_of
from cmdc_runtime.ids import CommandId
from cmdc_runtime.mcp_servers import McpServer
from scripts.reference import markdown
from scripts.reference.annotations import type_text
from scripts.reference.scenes import (
    COMMANDS,
    GENERAL,
    GUARD,
    PACKED,
    REFUSER,
    TAKEN,
    Scene,
    approval_of,
    guarded,
    loaded,
    plugin_loaded,
    scene,
)
from scripts.reference.sources import declared
from workers.core.state import Memory, State
from workers.core.step import (
    Answer,
    AnswerMessages,
    AnswerPage,
    AnswerStatus,
    AnswerTool,
    AskAboutSteering,
    AskBackend,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    ChangePlugins,
    ChangeServers,
    ChangeTools,
    CheckAnswer,
    CheckPrompt,
    Complete,
    CountSubagents,
    Effect,
    EndSubagents,
    ExchangeTools,
    ExitProcess,
    FilterHistory,
    LoadPlugin,
    LoadTools,
    MakeCheckpoint,
    Publish,
    Refuse,
    RunSubagent,
    RunTools,
    Sleep,
    Summarize,
    WriteRecord,
)

_ID: Final = CommandId("p-4")
_STAYS: Final = "stays"
_INTRO: Final = f"""\
What a client may ask of a session, and what becomes of it in each state. These tables are made by
running the agent's own: each command is put to a session with much going on. In every state a call
of `shell` from an earlier cycle waits for approval. In the states of a cycle a second prompt is
queued and a caller waits for the end of the first one. While tools are executed, `shell` is
killable, `write_file` is immune, `ask_user` waits for the user, `task` for a subagent
(`{GENERAL}`), and `order` for the program of its tool.

A durable command is in the journal before the agent sees it and takes effect once; a question
changes nothing. The order is: the answer to a durable command and the records of its step are one
transaction, and the events follow it."""
_HEAD: Final = ("given", "then", "answer", "events", "work", "records")


@dataclass(frozen=True, slots=True)
class Case:
    """A command in other circumstances; ``name`` says which."""

    name: str
    make: Callable[[Memory], Command]
    prepare: Callable[[Memory], Memory] = lambda memory: memory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command, each part as the page shows it."""

    then: str
    answer: str
    events: str
    work: str
    records: str


def _bounded(**policy: Any) -> Callable[[Memory], Memory]:  # Any: fields of the policy
    return lambda memory: structs.replace(memory, policy=structs.replace(memory.policy, **policy))


_OTHERS: Final[Mapping[type[Command], tuple[Case, ...]]] = {
    Prompt: (
        Case("only white space", lambda _: Prompt(text=" ")),
        Case("the queue is full", lambda _: Prompt(text="x"), _bounded(max_queued_prompts=1)),
    ),
    Steer: (
        Case('`scope="tree"`', lambda _: Steer(text="Rather so.", scope="tree")),
        Case(
            "plugins listen",
            lambda _: Steer(text="Rather so."),
            lambda memory: structs.replace(memory, plugins=guarded({kind_of(BeforeSteering)})),
        ),
        Case("only white space", lambda _: Steer(text=" ")),
        Case("the queue is full", lambda _: Steer(text="x"), _bounded(max_steering_queue=0)),
    ),
    Abort: (
        Case('`kill_tools="all"`', lambda _: Abort(reason="enough", kill_tools="all")),
        Case('`kill_tools="none"`', lambda _: Abort(reason="enough", kill_tools="none")),
        Case("`children=False`", lambda _: Abort(reason="enough", children=False)),
        Case("`clear_queue=False`", lambda _: Abort(reason="enough", clear_queue=False)),
    ),
    Approve: (
        Case(
            "`auto_resume=False`",
            lambda memory: Approve(approval_id=approval_of(memory), auto_resume=False),
        ),
        Case("an unknown id", lambda _: Approve(approval_id="approval-0")),
    ),
    Reject: (
        Case(
            "`auto_resume=True`",
            lambda memory: Reject(approval_id=approval_of(memory), auto_resume=True),
        ),
        Case("an unknown id", lambda _: Reject(approval_id="approval-0")),
    ),
    AttachTools: (
        Case("a name is taken", lambda _: AttachTools(tools=(PACKED, TAKEN))),
        Case(
            "its name is taken, `single=True`", lambda _: AttachTools(tools=(TAKEN,), single=True)
        ),
    ),
    DetachTools: (
        Case("an unknown name", lambda _: DetachTools(names=("gone",))),
        Case("an unknown name, `single=True`", lambda _: DetachTools(names=("gone",), single=True)),
    ),
    AttachPlugin: (
        Case("its name is taken", lambda _: AttachPlugin(plugin=GUARD)),
        Case("`is_update=True`", lambda _: AttachPlugin(plugin=GUARD, is_update=True)),
        Case(
            "`is_update=True`, an unknown name",
            lambda _: AttachPlugin(plugin=REFUSER, is_update=True),
        ),
    ),
    AttachMcpServer: (
        Case(
            "its name is taken",
            lambda _: AttachMcpServer(server=McpServer("files", command=["a"])),
        ),
        Case("a wrong one", lambda _: AttachMcpServer(server=McpServer("files"))),
    ),
    DetachMcpServer: (Case("an unknown name", lambda _: DetachMcpServer(name="gone")),),
    DetachPlugin: (Case("an unknown name", lambda _: DetachPlugin(name="gone")),),
    SwitchModel: (
        Case("the same model", lambda memory: SwitchModel(model=memory.model)),
        Case("no provider", lambda _: SwitchModel(model="small")),
    ),
    AwaitCycle: (
        Case("of a cycle that ended", lambda _: AwaitCycle(prompt_id=CommandId("p-1"))),
        Case("of an unknown prompt", lambda _: AwaitCycle(prompt_id=CommandId("p-0"))),
    ),
}


def page() -> str:
    """Return the page."""
    overview = markdown.table(
        ("command", *(f"`{state}`" for state in State)),
        ([f"`{kind.__name__}`", *_glance(kind)] for kind in declared(Command)),
    )
    return markdown.page("Commands", _INTRO, overview, *map(_section, declared(Command)))


def outcome(case: Case, state: State) -> Outcome:
    """Return what becomes of a command that is given in ``state``."""
    before = scene(state)
    before = replace(before, memory=case.prepare(before.memory))
    command = case.make(before.memory)
    after = before.give(command, _ID)
    effects = after.effects
    while load := next(_of(after.effects, LoadTools | LoadPlugin), None):
        after = _when_loaded(after, load)
        effects = (*effects, *after.effects)
    return Outcome(
        then=_STAYS if after.state is state else f"`{after.state}`",
        answer=_answer(type(command), effects),
        events=markdown.codes(type(one.event).__name__ for one in _of(effects, Publish)),
        work=", ".join(filter(None, map(_work, effects))),
        records=markdown.codes(type(one.record).__name__ for one in _of(effects, WriteRecord)),
    )


def usual(kind: type[Command]) -> Case:
    """Return a command's usual case."""
    return Case("", COMMANDS[kind])


def _section(kind: type[Command]) -> str:
    nature = "Durable" if kind.durable else "A question"
    answered = f", answered by `{type_text(kind.answer)}`" if kind.answer is not None else ""
    head = f"## {kind.__name__}\n\n{markdown.prose(kind.__doc__)} {nature}{answered}."
    return f"{head}\n\n{markdown.table(_HEAD, _rows(kind))}"


def _rows(kind: type[Command]) -> Iterator[tuple[str, ...]]:
    expected = {state: outcome(usual(kind), state) for state in State}
    for state, found in expected.items():
        yield _row(f"`{state}`", found)
    for case in _OTHERS.get(kind, ()):
        states: dict[Outcome, list[State]] = {}
        for state in State:
            found = outcome(case, state)
            if found != expected[state]:
                states.setdefault(found, []).append(state)
        for found, alike in states.items():
            yield _row(f"{case.name}: {markdown.codes(alike)}", found)


def _row(given: str, found: Outcome) -> tuple[str, ...]:
    return (given, found.then, found.answer, found.events, found.work, found.records)


def _glance(kind: type[Command]) -> Iterator[str]:
    """Yield in a word what a command does, for each state."""
    for state in State:
        found = outcome(usual(kind), state)
        yield found.answer if found.then == _STAYS else f"→ {found.then}"


# --- parts of an outcome ------------------------------------------------------------------------


def _answer(kind: type[Command], effects: tuple[Effect, ...]) -> str:
    for effect in effects:
        match effect:
            case Complete(id=given, outcome=value) | Answer(id=given, value=value) if given == _ID:
                return _value(value, kind)
            case Refuse(error=error):
                return _value(error, kind)
            case AnswerStatus() | AnswerMessages() | AnswerPage():
                return markdown.code(type_text(kind.answer))
            case _:
                continue
    return f"`{type_text(kind.answer)}`, when there is one"


def _value(value: object, kind: type[Command]) -> str:
    match value:
        case CmdcError():
            return f"error `{value.code}`"
        case msgspec.Struct():
            flags = (
                f"{name}={flag}"
                for name in value.__struct_fields__
                if isinstance(flag := getattr(value, name), bool)
            )
            shown = ", ".join(flags)
            return f"`{type(value).__name__}({shown})`" if shown else f"`{type(value).__name__}`"
        case str():
            return "`str`" if kind.answer is str else "`CommandId`"
        case _:
            return markdown.code(value)


WORDS: Final[Mapping[type[Effect], Callable[[Any], str]]] = {
    CallModel: lambda _: "ask the model",
    CheckAnswer: lambda _: "have the output guardrails look at the answer",
    CheckPrompt: lambda _: "have the input guardrails look at the prompt",
    FilterHistory: lambda one: f"ask what {one.to} is to see",
    ExchangeTools: lambda one: f"have {len(one.tools)} tools",
    Summarize: lambda one: f"have {len(one.messages)} messages summed up",
    Sleep: lambda one: f"wait {one.delay_s:g} s",
    CancelModel: lambda _: "end the request",
    RunTools: lambda one: f"run {len(one.calls)} calls",
    CancelCalls: lambda one: f"end {markdown.codes(one.call_ids)}",
    AnswerTool: lambda _: "answer the waiting call",
    RunSubagent: lambda _: "start a subagent",
    EndSubagents: lambda one: f"end {len(one.child_ids)} subagent",
    CountSubagents: lambda _: "count what subagents used",
    AskPlugins: lambda one: f"notify the plugins `{one.hook.kind}`",
    AskAboutSteering: lambda _: "ask the plugins, then as above",
    LoadTools: lambda _: "open the packed code",
    ChangeTools: lambda one: "change the tools" if one.attached or one.detached else "drop them",
    ChangeServers: lambda _: "have these servers, end the others",
    LoadPlugin: lambda _: "open the packed code, ask the plugin at `session_start`",
    ChangePlugins: lambda one: "change the plugins" if one.attached or one.detached else "drop it",
    Answer: lambda one: "" if one.id == _ID else "answer a caller who waits",
    ExitProcess: lambda _: "end the process",
    MakeCheckpoint: lambda _: "save the state",
    AskBackend: lambda _: "ask the session's own checkpoint backend",
}
"""What the shell is to do, in a few words. Any: the effect of its own row."""
ELSEWHERE: Final = frozenset(
    {Publish, WriteRecord, Complete, Refuse, AnswerStatus, AnswerMessages, AnswerPage}
)
"""Effects that have a column of their own."""


def _work(effect: Effect) -> str:
    return "" if type(effect) in ELSEWHERE else WORDS[type(effect)](effect)


# Any: of that kind, or one of those kinds.
def _of(effects: tuple[Effect, ...], kind: Any) -> Iterator[Any]:
    return (effect for effect in effects if isinstance(effect, kind))


def _when_loaded(before: Scene, load: LoadTools | LoadPlugin) -> Scene:
    if isinstance(load, LoadPlugin):
        return before.post(plugin_loaded(_ID, load.command))
    return before.post(loaded(_ID, load.command))
