"""Runs of reasoning that calls publish: each has one end, whatever ends its call.

A call publishes the steps of its run, its end among them. One that is over without that leaves a
run that nobody would end: here it gets the thoughts of its open branches, with what they have used,
and ``reasoning_done``. Branches that still run are ended first, so its end waits until the last of
them is gone and counted, in this process or a later one.
"""

from msgspec.structs import replace

from cmdc_runtime.events import (
    Event,
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.events.reasoning import JUDGE, ROLE, TEXT_CHARS_MAX, over
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.ids import CallId, SessionId, branch_ref, run_of_call
from cmdc_runtime.messages import TokenUsage
from workers.core.children import EndedRun, OpenRun, RunningBranch
from workers.core.records import RunEnd, RunStep
from workers.core.state import Memory, OpenCall

# --- what a call publishes ------------------------------------------------------------------------


def step_of(event: Event) -> RunStep | None:
    """Return what an event says of the tree of a run, None where it is of none."""
    match event:
        case ReasoningBranch(branch_id=asked, parent_id=parent_id):
            return RunStep(
                run_id=event.run_id,
                strategy=event.strategy,
                asked=asked,
                parent_id=parent_id,
                is_no_answer=event.metadata.get(ROLE) == JUDGE,
            )
        case ReasoningThought(thought_id=come):
            return RunStep(
                run_id=event.run_id,
                strategy=event.strategy,
                come=come,
                is_no_answer=event.error is not None,
            )
        case ReasoningScore(thought_id=scored, score=score):
            return RunStep(run_id=event.run_id, strategy=event.strategy, scored=scored, score=score)
        case ReasoningPrune():
            return RunStep(run_id=event.run_id, strategy=event.strategy)
        case ReasoningDone():
            return RunStep(run_id=event.run_id, strategy=event.strategy, is_end=True)
        case _:
            return None


def event_of(step: RunStep) -> Event:
    """Return an event that says the same, without its texts."""
    run_id, strategy = step.run_id, step.strategy
    if step.is_end:
        return ReasoningDone(run_id=run_id, strategy=strategy, status="done")
    if step.asked is not None:
        return ReasoningBranch(
            run_id=run_id,
            strategy=strategy,
            branch_id=step.asked,
            parent_id=step.parent_id,
            prompt="",
            metadata={ROLE: JUDGE} if step.is_no_answer else {},
        )
    if step.come is not None:
        error = "" if step.is_no_answer else None
        return ReasoningThought(
            run_id=run_id, strategy=strategy, thought_id=step.come, content="", error=error
        )
    if step.scored is not None and step.score is not None:
        return ReasoningScore(
            run_id=run_id, strategy=strategy, thought_id=step.scored, score=step.score
        )
    return ReasoningPrune(run_id=run_id, strategy=strategy, thought_ids=())


def branch_of(run: OpenRun | None, call_id: CallId, ref: str) -> str | None:
    """Return which branch of a call's open run a subagent's ``ref`` names; None: it is of none."""
    asked = () if run is None else run.branches
    return next((one for one, _ in asked if branch_ref(call_id, one) == ref), None)


def after(run: OpenRun | None, step: RunStep | None) -> OpenRun | None:
    """Return the open run of a call after a step; None where it has none, or has ended it."""
    if step is None:
        return run
    if step.is_end:
        return None
    if run is None or run.run_id != step.run_id:
        run = OpenRun(step.run_id, step.strategy)
    if step.asked is not None:
        judges = (*run.judges, step.asked) if step.is_no_answer else run.judges
        run = replace(run, branches=(*run.branches, (step.asked, step.parent_id)), judges=judges)
    if step.come is not None:
        left = tuple(one for one in run.branches if one[0] != step.come)
        run = replace(_better(run, step), branches=left)
        run = replace(run, judges=tuple(one for one in run.judges if one != step.come))
    is_better = step.score is not None and (run.best_score is None or step.score > run.best_score)
    return replace(run, best=step.scored, best_score=step.score) if is_better else run


def _better(run: OpenRun, step: RunStep) -> OpenRun:
    """Take a thought for the best one, where none has a score and it is a branch's answer."""
    asked = {branch_id for branch_id, _ in run.branches}
    is_answer = not step.is_no_answer and step.come in asked and step.come not in run.judges
    return replace(run, best=step.come) if is_answer and run.best_score is None else run


def best_of(memory: Memory, open_: OpenCall) -> str | None:
    """Return the best answer of a call's open run; None where it has none of a branch.

    A branch may have answered whose thought was not published any more: it is the latest.
    """
    run = open_.run
    if run is None:
        return None
    answers = {one.ref: one.answer for one in memory.branches}
    unjudged = [one for one, _ in run.branches if one not in run.judges]
    best = () if run.best is None else (run.best,)
    names = best if run.best_score is not None else (*reversed(unjudged), *best)
    found = (answers.get(branch_ref(open_.call.call_id, one)) for one in names)
    texts = (one.text[:TEXT_CHARS_MAX] for one in found if one is not None and one.ok)
    return next(texts, None)


def count_step(memory: Memory, call_id: CallId, step: RunStep | None = None) -> Memory:
    """Count one more step of a running call, and what that says of its run.

    Where a run has gained a thought, the deaths before it count no more: nothing but runs was at
    work, so none of them was its end.
    """
    if memory.cycle is not None and _is_gain(memory, call_id, step):
        memory = replace(memory, cycle=replace(memory.cycle, crashes=0))
    calls = tuple(
        replace(open_, steps=open_.steps + 1, run=after(open_.run, step))
        if open_.call.call_id == call_id
        else open_
        for open_ in memory.calls
    )
    return replace(memory, calls=calls)


def _is_gain(memory: Memory, call_id: CallId, step: RunStep | None) -> bool:
    """Say whether a step is a branch's answer, and no call is open but those that make runs."""
    if step is None or step.come is None or step.is_no_answer:
        return False
    left = [open_ for open_ in memory.calls if open_.result is None]
    asked = [
        branch_id
        for open_ in left
        if open_.run is not None and open_.call.call_id == call_id
        for branch_id, _ in open_.run.branches
    ]
    return step.come in asked and all(open_.run is not None for open_ in left)


# --- a call is over, and its run is not -----------------------------------------------------------


def running(memory: Memory, open_: OpenCall) -> tuple[RunningBranch, ...]:
    """Return the branches of a call's open run whose subagents are not gone."""
    asked = () if open_.run is None else open_.run.branches
    places = {branch_ref(open_.call.call_id, one[0]): one for one in asked}
    return tuple(
        RunningBranch(child.session_id, *places[child.branch], lost_usage(memory, child.branch))
        for child in memory.children
        if child.branch in places
    )


def end(memory: Memory, call_id: CallId, run_end: RunEnd | None) -> Memory:
    """Remember the run of a call that is over, where its end waits for branches."""
    if run_end is None or not run_end.waits:
        return memory
    open_ = next(one for one in memory.calls if one.call.call_id == call_id)
    assert open_.run is not None  # noqa: S101 - that is what has an end
    ended = EndedRun(open_.run, run_end, running(memory, open_))
    return replace(memory, ended_runs=(*memory.ended_runs, ended))


def ends_at_once(memory: Memory, open_: OpenCall, run_end: RunEnd) -> tuple[Event, ...]:
    """Return the events of the end of a call's run now: all, unless it waits for branches."""
    run = open_.run
    assert run is not None  # noqa: S101 - that is what has an end
    late = {one.branch_id for one in running(memory, open_)} if run_end.waits else set()
    thoughts = tuple(
        _thought(
            run,
            run_end,
            RunningBranch(SessionId(""), branch_id, parent_id),
            _answer_of(memory, branch_ref(open_.call.call_id, branch_id)),
        )
        for branch_id, parent_id in run.branches
        if branch_id not in late
    )
    return thoughts if late else (*thoughts, done(run, run_end))


def _answer_of(memory: Memory, ref: str) -> BranchAnswer:
    """Return what came of a branch that does not run; one without an outcome has its usage."""
    answers = (one.answer for one in memory.branches if one.ref == ref)
    nothing = BranchAnswer(ok=False, text="", usage=lost_usage(memory, ref))
    return next(answers, nothing)


def lost_usage(memory: Memory, ref: str) -> TokenUsage:
    """Return what a branch used in those of its lives that ended without an outcome."""
    return sum((one.usage for one in memory.lost_branches if one.ref == ref), TokenUsage())


def stop_waiting_for(memory: Memory, child_id: SessionId) -> Memory:
    """Wait no more for a subagent that is gone; a run that waits for nobody is forgotten."""
    found = _waiting_for(memory, child_id)
    if found is None:
        return memory
    ended, branch = found
    left = replace(ended, branches=tuple(one for one in ended.branches if one != branch))
    runs = (left if one is ended else one for one in memory.ended_runs)
    return replace(memory, ended_runs=tuple(one for one in runs if one.branches))


def ends_behind(memory: Memory, child_id: SessionId, answer: BranchAnswer) -> tuple[Event, ...]:
    """Return the events of a subagent that is gone, if a run waits for it: the last ends its run.

    Ask before ``stop_waiting_for``.
    """
    found = _waiting_for(memory, child_id)
    if found is None:
        return ()
    ended, branch = found
    thought = _thought(ended.run, ended.end, branch, answer)
    is_last = len(ended.branches) == 1
    return (thought, done(ended.run, ended.end)) if is_last else (thought,)


def _waiting_for(memory: Memory, child_id: SessionId) -> tuple[EndedRun, RunningBranch] | None:
    pairs = ((run, branch) for run in memory.ended_runs for branch in run.branches)
    return next((pair for pair in pairs if pair[1].session_id == child_id), None)


def _thought(
    run: OpenRun, run_end: RunEnd, branch: RunningBranch, answer: BranchAnswer
) -> ReasoningThought:
    return ReasoningThought(
        run_id=run.run_id,
        strategy=run.strategy,
        thought_id=branch.branch_id,
        parent_id=branch.parent_id,
        content=answer.text[:TEXT_CHARS_MAX] if answer.ok else "",
        error=None if answer.ok else over(run_end.status),
        usage=answer.usage + branch.lost,
    )


def unpublished(memory: Memory, open_: OpenCall) -> OpenRun | None:
    """Return the run of a call that has begun and published nothing of it; None: it makes none.

    A process may die of a strategy, or a call be ended, before it has asked anything.
    """
    tool = memory.tool(open_.call.name)
    if tool is None or not tool.run_strategy or open_.started_at_ms is None or open_.steps:
        return None
    named = open_.call.arguments.get("strategy")
    strategy = named if isinstance(named, str) and named else tool.run_strategy
    return OpenRun(run_of_call(open_.call.call_id, memory.turns), strategy)


def done(run: OpenRun, run_end: RunEnd) -> ReasoningDone:
    """Return what reports the end of a run whose call was over before it."""
    return ReasoningDone(
        run_id=run.run_id,
        strategy=run.strategy,
        status=run_end.status,
        answer=run_end.answer,
        reason=run_end.reason,
    )
