"""The options of the planning."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

DIRECTIVE: Final = """\
Before you act on this request, write down a plan for it: a Markdown checklist with one item for \
each step, in the order in which you will take them.

- [ ] first step
- [ ] second step

Keep the steps few and concrete. Then carry the plan out without waiting for a go-ahead. Whenever \
something has changed, repeat the checklist with the same titles and the new marks: [x] completed, \
[~] in progress, [!] failed, [-] skipped because it is not needed any more. Your last message \
answers the request in full."""
"""What the model reads after a prompt that wants a plan."""


class Planning(BuiltInPlugin, frozen=True, kw_only=True):
    """Has the model make a checklist before it acts, and follows the plan until it is done.

    The plan stands in the system prompt, outlives crashes and compactions, and goes to observers
    as it is made, as its steps are checked off, and when all of them are over.
    """

    short_name: ClassVar[str] = "planning"
    plan_first: bool = True
    """Whether the model is asked for a plan; else a checklist that it makes by itself is one."""
    min_prompt_length: Annotated[int, Meta(ge=0)] = 20
    """In characters; a shorter prompt wants no plan."""
    directive: Annotated[str, Meta(min_length=1)] = DIRECTIVE
    """What asks for the plan; it should name the form ``- [ ] step``."""
    max_plan_attempts: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often the model is reminded when a reply has no plan; then it goes on without one."""
