"""A record of what a tree was given, played again before the eyes of ``Audit``, and shown as text.

The record is that of a schedule or of a daemon: both write the same lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scripts.simulate.audit import Audit
from supervisor.core.tree.messages import (
    AnyInput,
    Ask,
    CancelTimer,
    ChildCall,
    ChildExited,
    DeleteChild,
    Due,
    Effect,
    Fail,
    HibernateChild,
    Ignored,
    Input,
    Kill,
    KillSupervisor,
    Launch,
    ProcessEnded,
    ProcessInput,
    Reconfigure,
    Ref,
    Replied,
    Report,
    RestartChild,
    SetTimer,
    StartChild,
    Stop,
    SupervisorEnded,
    SupervisorPath,
    SupervisorUp,
    Terminate,
    TerminateChild,
    Up,
    WakeChild,
)
from supervisor.core.tree.recording import RecordedInput, RecordingHead, letters, read
from supervisor.core.tree.tree import Tree

CALLS: Final[Mapping[type[Input], str]] = {
    StartChild: "start",
    TerminateChild: "terminate",
    HibernateChild: "hibernate",
    RestartChild: "restart",
    WakeChild: "wake",
    DeleteChild: "delete",
}


def shown(lines: Iterable[bytes]) -> Iterator[tuple[bool, str]]:
    """Yield each input and what came of it as text, and whether that is as it should be.

    Raises:
        InvalidOptions: if the lines are no record that can be played.
    """
    head, rest = read(lines)
    yield True, _beginning(head)
    tree = Tree(head.spec)
    audit = Audit(tree, head.spec)
    for one in rest:
        known = len(audit.problems)
        audit.now_s = one.at_s
        _announce(audit, one.input)
        effects = tree.handle(one.input, one.at_s)
        for effect in effects:
            audit.see[type(effect)](effect)
        audit.note_enders()
        yield True, "\n".join([line_of(one), *(f"    {text(effect)}" for effect in effects)])
        if letters(effects) != one.did:
            yield False, f"    then it did {one.did!r}, now {letters(effects)!r}"
        for problem in audit.problems[known:]:
            yield False, f"    {problem}"


def line_of(one: RecordedInput) -> str:
    """Return one input as a line."""
    given = one.input
    words = [f"{one.at_s:.3f}", given.__struct_config__.tag, place(given.place, "")]
    if isinstance(given, ProcessInput):
        words.append(f"#{given.ref.generation}")
    match given:
        case Due(timer=timer):
            words.append(timer.kind)
        case ChildExited(reason=reason, ending=ending):
            words.append(f"({reason}: {ending})")
        case Fail(reason=reason):
            words.append(f"({reason})")
        case Stop(deadline_s=float(until_s)) | TerminateChild(deadline_s=float(until_s)):
            words.append(f"until {until_s:.3f}")
        case HibernateChild(deadline_s=float(until_s)):
            words.append(f"until {until_s:.3f}")
        case _:
            pass
    return " ".join(map(str, words))


def text(effect: Effect) -> str:
    """Return one effect as a line."""
    line = ""
    match effect:
        case Report(label=label, path=path, child=child, reason=reason):
            name = "" if child is None else child.id
            line = f"report {label} {place(path, name)} {reason or ''}"
        case ProcessEnded(ref=ref, reason=reason):
            what = "restarting" if effect.restarting else "for good"
            line = f"ended {_process(ref)} {what}: {reason}"
        case SetTimer(timer=timer, delay_s=delay_s):
            line = f"timer {timer.kind} of {place(timer.path, timer.child)} in {delay_s:g} s"
        case CancelTimer(timer=timer):
            line = f"no timer {timer.kind} of {place(timer.path, timer.child)}"
        case Replied(call=call, result=answer):
            line = f"call {call}: {answer.outcome} {answer.reason or ''}"
        case SupervisorUp(path=path):
            line = f"up {place(path, '')}"
        case SupervisorEnded(path=path, reason=reason):
            line = f"ended {place(path, '')}: {reason}"
        case Launch(ref=ref) | Ask(ref=ref) | Terminate(ref=ref) | Kill(ref=ref):
            line = f"{type(effect).__name__.lower()} {_process(ref)}"
    return line.rstrip()


def place(path: SupervisorPath, child: str) -> str:
    """Return where somebody is, ``/`` for the root."""
    return "/" + "/".join((*path, child) if child else path)


def _process(ref: Ref) -> str:
    return f"{place(ref.path, ref.child)} #{ref.generation}"


def _beginning(head: RecordingHead) -> str:
    missing = f", {head.dropped} inputs are missing" if head.dropped else ""
    return f"a tree of {len(head.spec.children)} children{missing}: {head.note or 'no note'}"


def _announce(audit: Audit, given: AnyInput) -> None:
    """Give the audit what goes in."""
    match given:
        case Up(ref=ref):
            audit.ready(ref)
        case Ignored(ref=ref):
            audit.ignored(ref)
        case ChildExited(ref=ref, record=record):
            audit.gone(ref, record)
        case Due(timer=timer):
            audit.timers.discard(timer)
        case Stop():
            audit.stopped()
        case KillSupervisor(path=path):
            audit.killed(path)
        case Reconfigure(path=path, spec=spec):
            audit.learn(spec, path)
        case StartChild(path=path, spec=child, call=int(call)):
            audit.called(call, CALLS[StartChild], (path, child.id))
            audit.expect(child, path)
        case ChildCall(path=path, child=name, call=int(call)):
            audit.called(call, CALLS[type(given)], (path, name))
        case _:
            pass
