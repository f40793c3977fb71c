"""A record of what a tree was told, played again before the eyes of ``Audit``, and shown as text.

The record is that of a schedule or of a daemon: both write the same lines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from scripts.simulate.audit import Audit, Key
from supervisor.core.tree.recording import Head, Taken, give, letters, read
from supervisor.core.tree.tree import Tree
from supervisor.core.tree.words import (
    Ask,
    CancelTimer,
    Departed,
    Effect,
    Kill,
    Launch,
    Path,
    Ref,
    Replied,
    Report,
    SetTimer,
    SupervisorEnded,
    SupervisorUp,
    Terminate,
    Timer,
)

CALLS: Final[Mapping[str, str]] = {
    "start_child": "start",
    "terminate_child": "terminate",
    "rest_child": "rest",
    "restart_child": "restart",
    "wake_child": "wake",
    "delete_child": "delete",
}


def shown(lines: Iterable[bytes]) -> Iterator[tuple[bool, str]]:
    """Yield each input and what came of it as text, and whether that is as it should be.

    Raises:
        InvalidOptions: if the lines are no record that can be played.
    """
    head, rest = read(lines)
    yield True, _beginning(head)
    spec = head.spec.spec()
    tree = Tree(spec)
    audit = Audit(tree, spec)
    for taken in rest:
        known = len(audit.problems)
        audit.now_s = taken.at_s
        _announce(audit, taken)
        effects = give(tree, taken)
        for effect in effects:
            audit.see[type(effect)](effect)
        audit.note_enders()
        yield True, "\n".join([told(taken), *(f"    {text(effect)}" for effect in effects)])
        if letters(effects) != taken.did:
            yield False, f"    then it did {taken.did!r}, now {letters(effects)!r}"
        for problem in audit.problems[known:]:
            yield False, f"    {problem}"


def told(taken: Taken) -> str:
    """Return one input as a line."""
    words = [f"{taken.at_s:.3f}", taken.input, place(taken.path, taken.child)]
    if taken.generation:
        words.append(f"#{taken.generation}")
    if taken.timer is not None:
        words.append(taken.timer)
    if taken.reason is not None:
        words.append(f"({taken.reason}: {taken.ending})")
    if taken.deadline_s is not None:
        words.append(f"until {taken.deadline_s:.3f}")
    return " ".join(words)


def text(effect: Effect) -> str:
    """Return one effect as a line."""
    line = ""
    match effect:
        case Report(label=label, path=path, child=child, reason=reason):
            name = "" if child is None else child.id
            line = f"report {label} {place(path, name)} {reason or ''}"
        case Departed(ref=ref, reason=reason):
            what = "restarting" if effect.restarting else "for good"
            line = f"departed {_process(ref)} {what}: {reason}"
        case SetTimer(timer=timer, delay_s=delay_s):
            line = f"timer {timer.kind} of {place(timer.path, timer.child)} in {delay_s:g} s"
        case CancelTimer(timer=timer):
            line = f"no timer {timer.kind} of {place(timer.path, timer.child)}"
        case Replied(call=call, answer=answer):
            line = f"call {call}: {answer.outcome} {answer.reason or ''}"
        case SupervisorUp(path=path):
            line = f"up {place(path, '')}"
        case SupervisorEnded(path=path, reason=reason):
            line = f"ended {place(path, '')}: {reason}"
        case Launch(ref=ref) | Ask(ref=ref) | Terminate(ref=ref) | Kill(ref=ref):
            line = f"{type(effect).__name__.lower()} {_process(ref)}"
    return line.rstrip()


def place(path: Path, child: str) -> str:
    """Return where somebody is, ``/`` for the root."""
    return "/" + "/".join((*path, child) if child else path)


def _process(ref: Ref) -> str:
    return f"{place(ref.path, ref.child)} #{ref.generation}"


def _beginning(head: Head) -> str:
    missing = f", {head.dropped} inputs are missing" if head.dropped else ""
    return f"a tree of {len(head.spec.children)} children{missing}: {head.note or 'no note'}"


def _announce(audit: Audit, taken: Taken) -> None:
    """Tell the audit what goes in."""
    key: Key = (taken.path, taken.child)
    ref = Ref(taken.path, taken.child, taken.generation)
    said: Mapping[str, Callable[[], None]] = {
        "up": lambda: audit.ready(ref),
        "ignored": lambda: audit.ignored(ref),
        "exited": lambda: audit.gone(ref),
        "stop": audit.stopped,
        "kill": lambda: audit.killed(taken.path),
    }
    if taken.input in said:
        said[taken.input]()
    elif taken.timer is not None:
        audit.timers.discard(Timer(*key, taken.timer))
    elif taken.spec is not None:
        audit.learn(taken.spec.spec(), taken.path)
    elif taken.input in CALLS:
        audit.called(taken.call, CALLS[taken.input], key)
        if taken.child_spec is not None:
            audit.expect(taken.child_spec.spec(), taken.path)
