"""One run of a strategy, as a machine without IO: inputs in, outputs out, in their order.

``Run.handle`` takes what has happened and returns what is to be done. Who drives it starts and ends
branches, publishes events and keeps the inputs; time comes with each input, and chance is seeded by
the ids of session and run. So a run that died is played again by ``RunBegun`` with what came in its
earlier lives: it decides the same, pays no branch twice, and passes over what was published.

A node of the tree is *waiting* until there is room and budget for its branch, *running*, *ending*
when nobody wants its thought any more, and *ended*. The run waits for the branches of its latest
decision, the *batch*; when it is over it waits for those that are ending, and finishes then.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.events import (
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.events.reasoning import TEXT_CHARS_MAX, over
from cmdc_runtime.extensions.reasoning import (
    Branch,
    Continue_,
    Decision,
    Done,
    Failed,
    ReasoningContext,
    ReasoningStrategy,
    Revise,
    RunStatus,
    Thought,
    drained,
    parted,
)
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.plain import short
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from workers.reasoning.draft import (
    ACTIVE,
    CUT_OFF,
    End,
    Node,
    TreeDraft,
    failure_of,
    score_of,
    unknown,
)
from workers.reasoning.inputs import (
    BranchRefused,
    Deadline,
    EndBranch,
    Finish,
    MisuseError,
    NotDeterministicError,
    Output,
    PublishEvent,
    Recorded,
    RunAborted,
    RunBegun,
    RunBudget,
    StartBranch,
    ThoughtCame,
    is_broke,
    left_out,
    lost,
    name_of,
    thought_of,
)
from workers.reasoning.remains import NotedAnswer, best_answer, best_of, noted_answer, open_of


class Run:
    """One run: ``handle`` gets ``RunBegun`` first, then each thing as it happens."""

    def __init__(self, strategy: ReasoningStrategy) -> None:
        """Take the strategy, an instance for this run alone."""
        self._strategy = strategy
        self._begun = RunBegun(run_id="", question="")
        self._budget = RunBudget(self._begun.limits)
        self._random = Random(0)  # noqa: S311 - no secret
        self._state: Any = None  # Any: the strategy's own
        self._nodes: dict[str, Node] = {}
        self._batch: list[Node] = []
        self._steps = self._revisions = 0
        self._names = {"b": 0, "t": 0}
        self._now_ms = 0
        self._end: End | None = None
        self._is_finished = False
        self._events: list[ReasoningEvent] = []
        self._to_pass: deque[ReasoningEvent | None] = deque()
        """What was published in earlier lives; None where only that it was is known."""
        self._outputs: list[Output] = []
        self._method = "init"
        """Of the strategy: the one that was asked last."""
        self._trace = ""

    @property
    def trace(self) -> str:
        """The traceback of what the run has failed of, for a log; "" where it was no exception."""
        return self._trace

    @property
    def is_finished(self) -> bool:
        """Whether ``Finish`` was said: nothing that comes changes anything."""
        return self._is_finished

    def handle(self, given: RunBegun | Recorded) -> list[Output]:
        """Take what has happened, and return what is to be done about it."""
        self._now_ms = max(self._now_ms, given.at_ms)
        if isinstance(given, RunBegun):
            self._begin(given)
        else:
            self._take(given)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _begin(self, begin: RunBegun) -> None:
        self._begun = begin
        self._now_ms = begin.at_ms
        self._budget = RunBudget(begin.limits)
        # The first call of every fresh session has the same id, so the run's alone is not enough.
        seed = f"{begin.session_id} {begin.run_id}" if begin.session_id else begin.run_id
        self._random = Random(seed)  # noqa: S311 - no secret
        heard = begin.published
        self._to_pass.extend([None] * heard if isinstance(heard, int) else heard)
        self._guarded(self._first)
        for given in begin.played:
            self._now_ms = max(self._now_ms, given.at_ms)
            self._take(given)
        self._outputs = [output for output in self._outputs if self._is_open(output)]

    def _is_open(self, output: Output) -> bool:
        """Say whether something that was played is still to be done."""
        match output:
            case StartBranch():
                return self._nodes[str(output.branch.id)].phase == "running"
            case EndBranch():
                return self._nodes[output.branch_id].phase == "ending"
            case _:
                return True

    def _first(self) -> None:
        opts = getattr(self._strategy, "opts", {})
        made = foreign.call(lambda: self._strategy.init(opts, self._context()))
        self._note()
        if isinstance(made, Failed):
            self._go(made)
        else:
            self._state = made
            self._go(self._step())

    def _take(self, given: Recorded) -> None:
        if self._is_finished:
            return
        match given:
            case ThoughtCame():
                self._guarded(lambda: self._came(given))
            case BranchRefused(reason=reason):
                self._refuse(NotDeterministicError(reason))
            case Deadline():
                self._guarded(lambda: self._cut("timeout", None))
            case RunAborted():
                self._guarded(lambda: self._cut("aborted", given.reason or None))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do something that the strategy may spoil: then the run fails."""
        try:
            work()
        except NotDeterministicError as error:
            self._refuse(error)
        except (ForeignError, MisuseError) as error:
            self._trace = error.trace if isinstance(error, ForeignError) else ""
            why = failure_of(self._strategy.name, self._method, error, __file__)
            try:
                self._close("failed", reason=why)
            except NotDeterministicError as another:
                self._refuse(another)

    def _refuse(self, error: NotDeterministicError) -> None:
        """End a run that cannot be replayed, whatever its end was, with all that was published."""
        self._events.extend(one for one in self._to_pass if one is not None)
        self._to_pass.clear()
        if self._begun.published:
            self._adopt()
        best = best_of(self._events, self._begun.run_id)
        self._end = End("failed", best, str(error))
        self._wind_down()

    def _adopt(self) -> None:
        """Take the tree as it was published in earlier lives, whose branches may still run."""
        left = open_of(self._events)
        come = {one.thought_id for one in self._events if isinstance(one, ReasoningThought)}
        self._nodes = {name: node for name, node in self._nodes.items() if name in {*left, *come}}
        for name in come & self._nodes.keys():
            self._nodes[name].phase = "ended"
            if self._nodes[name].thought is None:
                self._nodes[name].thought = Thought(name, "")
        for name, asked in left.items():
            branch = Branch(asked.prompt, id=name, parent_id=asked.parent_id)
            node = self._nodes.setdefault(name, Node(name, branch))
            if node.phase != "ending":
                node.thought, node.phase = None, "running"

    # --- what the strategy is asked ---

    def _context(self) -> ReasoningContext:
        return ReasoningContext(
            question=self._begun.question,
            opts=getattr(self._strategy, "opts", {}),
            random=self._random,
            session_id=self._begun.session_id,
            thoughts=self._thoughts(),
            steps_left=self._begun.limits.max_steps - self._steps,
            tokens_left=self._budget.tokens_left,
            usd_left=self._budget.usd_left,
        )

    def _thoughts(self) -> tuple[Thought, ...]:
        return tuple(node.thought for node in self._nodes.values() if node.thought is not None)

    def _branches(self) -> list[Thought]:
        nodes = self._nodes.values()
        return [one.thought for one in nodes if one.branch is not None and one.thought is not None]

    # Any: what it returns
    def _asked(self, method: Callable[[], Any], name: str) -> Decision | None:
        """Return what a method decides, and publish what it has noted meanwhile."""
        self._method = name
        decided = foreign.call(method)
        self._note()
        if decided is None:
            return None
        try:
            decision, self._state = parted(decided, self._state)
        except TypeError as error:
            raise MisuseError(f"{type(error).__name__}: {error}") from error
        return decision

    def _step(self) -> Decision:
        return self._demanded(lambda: self._strategy.step(self._state, self._context()), "step")

    def _aggregate(self) -> Decision:
        thoughts = [node.thought for node in self._batch if node.thought is not None]
        return self._demanded(lambda: self._strategy.aggregate(thoughts, self._state), "aggregate")

    def _demanded(self, method: Callable[[], Any], name: str) -> Decision:  # Any: as above
        decision = self._asked(method, name)
        if decision is None:
            raise MisuseError("TypeError: it returned None, which is no decision")
        return decision

    def _early(self) -> Decision | None:
        """Ask whether the branches that have ended are enough; the others are ended then."""
        thoughts = [node.thought for node in self._batch if node.thought is not None]
        decision = self._asked(lambda: self._strategy.early(thoughts, self._state), "early")
        if decision is not None:
            left = [node.id for node in self._batch if node.thought is None]
            self._prune(left, "decided")
        return decision

    def _note(self) -> None:
        """Publish the scores and prunings that the strategy has noted."""
        notes = drained(self._strategy)
        for thought in notes.scored:
            self._score(thought)
        for ids, reason in notes.pruned:
            self._prune(ids, reason)

    def _score(self, scored: Thought) -> None:
        if not isinstance(scored, Thought):
            raise MisuseError(f"scored: expected thoughts, got {short(scored)}")
        node = self._known(scored.id)
        if node.thought is None or scored.score is None:
            raise MisuseError(f"scored: {scored.id!r} has no thought, or was given no score")
        score, detail = score_of(scored)
        if (score, detail) == (node.thought.score, node.thought.score_detail):
            return
        node.thought = msgspec.structs.replace(node.thought, score=score, score_detail=detail)
        event = ReasoningScore(**self._whose(), thought_id=node.id, score=score, detail=detail)
        self._publish(event)

    def _prune(self, ids: Sequence[str], reason: str) -> None:
        known = {node.id: node for node in map(self._known, ids)}
        fresh = [node for node in known.values() if not node.is_pruned]
        if not fresh:
            return
        pruned = tuple(node.id for node in fresh)
        self._publish(
            ReasoningPrune(**self._whose(), thought_ids=pruned, reason=foreign.bare_text_of(reason))
        )
        for node in fresh:
            node.is_pruned = True
            self._give_up(node, f"pruned: {reason}" if reason else "pruned")

    def _known(self, node_id: object) -> Node:
        node = self._nodes.get(node_id) if isinstance(node_id, str) else None
        if node is None:
            raise unknown(node_id)
        return node

    # --- what it decides ---

    def _go(self, decision: Decision | None) -> None:
        """Carry decisions out until branches have to be waited for, or the run is over."""
        while decision is not None and self._end is None:
            match decision:
                case Done():
                    return self._close("done", noted=noted_answer(decision.answer))
                case Failed():
                    return self._close("failed", reason=_why(decision))
                case _:
                    pass
            if self._steps >= self._begun.limits.max_steps:
                return self._close("max_steps_exceeded", reason=f"{self._steps} steps were taken")
            self._steps += 1
            decision = self._carried_out(decision)
        return None

    def _carried_out(self, decision: Decision) -> Decision | None:
        """Do what is decided, and return what is decided next; None: branches run."""
        draft = TreeDraft(self._nodes, self._names)
        match decision:
            case Continue_(thought=given):
                for one in given if isinstance(given, list | tuple) else [given]:
                    draft.put(one)
                self._add(draft)
                return self._step()
            case Revise():
                if self._revisions >= self._begun.limits.max_revisions:
                    reason = f"{self._revisions} revisions were made"
                    self._close("max_steps_exceeded", reason=reason)
                    return None
                if not isinstance(decision.branch_ids, list | tuple):
                    raise MisuseError(
                        f"Revise: branch_ids: expected ids, got {short(decision.branch_ids)}"
                    )
                nodes = [self._known(one) for one in decision.branch_ids] or self._batch
                if not nodes:
                    raise MisuseError("Revise: no branch was asked for yet that could run again")
                self._revisions += 1
                batch = [draft.again(one, decision.feedback, self._revisions) for one in nodes]
            case _:
                branches = [decision] if isinstance(decision, Branch) else decision
                batch = [draft.wanted(branch) for branch in branches]  # type: ignore[union-attr]
        self._batch = list({node.id: node for node in batch}.values())
        if not self._batch:
            raise MisuseError("a decision without a branch: end with Done or Failed")
        self._add(draft)
        self._start()
        return self._completed()

    def _add(self, draft: TreeDraft) -> None:
        """Put all that a decision adds into the tree, and publish it."""
        for node in draft.fresh.values():
            self._nodes[node.id] = node
            if (branch := node.branch) is not None:
                event = ReasoningBranch(
                    **self._whose(),
                    branch_id=node.id,
                    parent_id=branch.parent_id,
                    prompt=branch.prompt[:TEXT_CHARS_MAX],
                    model=branch.model,
                    metadata=branch.metadata,
                    revision=node.revision,
                )
                self._publish(event)
            elif (thought := node.thought) is not None:
                node.thought = msgspec.structs.replace(thought, score=None, score_detail={})
                self._publish_thought(node.thought, TokenUsage(), thought.metadata)
                if thought.score is not None:
                    self._score(thought)

    # --- branches come and go ---

    def _start(self) -> None:
        """Start those that wait, as far as there is room and budget."""
        while waiting := [node for node in self._batch if node.phase == "waiting"]:
            active = sum(node.phase in ACTIVE for node in self._nodes.values())
            if active >= self._begun.limits.max_parallel:
                return
            node = waiting[0]
            share = self._budget.reserve(node.id, len(waiting))
            if share is None:
                if not active:
                    self._close("budget_exceeded", reason=f"{len(waiting)} branches were left")
                return
            node.phase = "running"
            assert node.branch is not None  # noqa: S101 - only a branch waits
            self._outputs.append(
                StartBranch(branch=node.branch, tokens=share.tokens, cost_usd=share.cost_usd)
            )

    def _came(self, came: ThoughtCame) -> None:
        node = self._nodes.get(came.branch_id)
        if node is None or node.branch is None or node.phase not in ACTIVE:
            return None  # it was published before, or nobody asked for it
        usage = self._budget.charged(came)
        self._budget.spend(node.id, usage)
        node.phase = "ended"
        if node.thought is None:
            node.thought = thought_of(node.branch, came)
        self._publish_thought(node.thought, usage, {})
        if self._end is not None:
            return self._wind_down()
        is_alone = not any(one.phase in ACTIVE for one in self._nodes.values())
        if is_alone and is_broke(node.thought.error):
            return self._close("budget_exceeded", reason="what was left is too little")
        is_open = any(one.thought is None for one in self._batch)
        decision = self._early() if is_open and node in self._batch else None
        if decision is None:
            self._start()
            decision = self._completed()
        return self._go(decision)

    def _completed(self) -> Decision | None:
        """Return what follows from the batch; None while one of it is not there."""
        if self._end is not None or any(node.thought is None for node in self._batch):
            return None
        return self._aggregate()

    def _give_up(self, node: Node, why: str) -> None:
        """End a branch that has not ended; its thought says why."""
        if node.branch is None or node.thought is not None:
            return
        node.thought = lost(node.branch, why)
        if node.phase == "running":
            node.phase = "ending"
            self._outputs.append(EndBranch(branch_id=node.id))
        else:
            node.phase = "ended"
            self._publish_thought(node.thought, TokenUsage(), {})

    # --- the end ---

    def _cut(self, status: RunStatus, reason: str | None) -> None:
        """End the run from outside; a second time, without waiting for anybody."""
        if self._end is None:
            return self._close(status, reason=reason)
        for node in self._nodes.values():
            if node.phase in ACTIVE and node.thought is not None:
                node.phase = "ended"
                self._publish_thought(node.thought, TokenUsage(), {})
        return self._wind_down()

    def _close(
        self, status: RunStatus, *, noted: NotedAnswer = (None, ()), reason: str | None = None
    ) -> None:
        """Say how the run ends, and end what still runs."""
        if self._end is not None:
            return
        if status in CUT_OFF:
            noted = best_answer(self._strategy, self._thoughts(), self._state)
        answer, notes = noted
        self._end = End(status, answer, reason, notes)
        self._wind_down()

    def _wind_down(self) -> None:
        """End all branches, and finish when none is left."""
        end = self._end
        if end is None or self._is_finished:
            return
        for node in self._nodes.values():
            self._give_up(node, over(end.status))
        if any(node.phase in ACTIVE for node in self._nodes.values()):
            return
        done = ReasoningDone(
            **self._whose(),
            status=end.status,
            answer=end.answer,
            reason=end.reason,
            elapsed_ms=self._now_ms - self._begun.at_ms,
            notes=(*end.notes, *left_out(self._branches(), self._begun.limits)),
        )
        self._publish(done)
        self._is_finished = True
        result = ReasoningResult.of(self._events, self._begun.run_id)
        self._outputs.append(Finish(result=result))

    # --- what is published ---

    def _whose(self) -> dict[str, str]:
        return {"run_id": self._begun.run_id, "strategy": self._strategy.name}

    def _publish_thought(
        self,
        thought: Thought,
        usage: TokenUsage,
        metadata: dict[str, Any],  # Any: plain data
    ) -> None:
        event = ReasoningThought(
            **self._whose(),
            thought_id=thought.id,
            parent_id=thought.parent_id,
            content=thought.content[:TEXT_CHARS_MAX],
            error=thought.error,
            usage=usage,
            metadata=metadata,
        )
        self._publish(event)

    def _publish(self, event: ReasoningEvent) -> None:
        """Publish an event, unless it was published in an earlier life."""
        if not self._to_pass:
            self._events.append(event)
            self._outputs.append(PublishEvent(event=event))
            return
        heard = self._to_pass.popleft()
        self._events.append(event if heard is None else heard)
        if heard not in (None, event) and not isinstance(heard, ReasoningDone):
            raise NotDeterministicError(
                f"{name_of(heard)} was published, and now it is {name_of(event)}"
            )


def _why(failed: Failed) -> str:
    """Return the reason that a strategy gives up for."""
    given: object = failed.reason
    is_empty = given is None or (isinstance(given, str) and not given.strip())
    return "the strategy gave no reason" if is_empty else foreign.text_of(given)
