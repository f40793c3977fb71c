"""Blueprints, options passed on, and sessions that go on elsewhere."""

from typing import Unpack, assert_type

import cmdc_runtime as cmdc


def started(name: str, **options: Unpack[cmdc.GivenOptions]) -> cmdc.Session:
    """Pass options on: they are checked where this is called."""
    options["group_id"] = name
    return cmdc.create_agent(**options)


class Support:
    """A class that builds options is a blueprint."""

    name = "Support"

    @staticmethod
    def build(opts: dict[str, object], /) -> cmdc.Blueprint:
        """Build them."""
        return cmdc.Blueprint(model="openai:gpt-4o-mini", user_data={"given": sorted(opts)})


base = cmdc.Blueprint(name="helper", model="openai:gpt-4o-mini")
assert_type(base.override(max_turns=3), cmdc.Blueprint)
cmdc.create_agent(blueprint=base)
cmdc.create_agent(blueprint=Support)
cmdc.create_agent(blueprint="helper")  # wrong
started("team", model="openai:gpt-4o-mini", max_turns=3)
started("team", modle="openai:gpt-4o-mini")  # wrong
started("team", max_turns="3")  # wrong
session = started("team", model="openai:gpt-4o-mini")
fork = session.resume_session(new_id="copy", system_prompt="Be brief.")
assert_type(fork, cmdc.Session)
snapshot = fork.checkpoint(label="before")
assert_type(snapshot, cmdc.Snapshot)
cmdc.resume_session("a-session", checkpoint_id=snapshot.checkpoint_id)
cmdc.resume_session("a-session", checkpoint=snapshot)  # wrong
