"""Plugins: what type checkers know of a plugin's options and state, in each way to give them."""

from typing import Any, assert_type

import msgspec

import cmdc_runtime as cmdc


class Limits(msgspec.Struct, frozen=True):
    """The options of one."""

    denied: frozenset[str] = frozenset({"rm"})


class Hits(msgspec.Struct):
    """What it remembers."""

    count: int = 0


class Guard(cmdc.Plugin[Limits, Hits]):
    """With classes that stand beside it."""

    def before_tool(
        self, event: cmdc.BeforeTool, context: cmdc.PluginContext
    ) -> cmdc.BlockTool | None:
        """Count what it blocks."""
        assert_type(self.config, Limits)
        assert_type(self.state, Hits)
        self.state.cuont += 1  # wrong
        if event.name in self.config.denied:
            self.state.count += 1
            return cmdc.BlockTool("on the deny list")
        return None


class Nested(cmdc.Plugin):
    """With classes inside."""

    class Config(msgspec.Struct, frozen=True):
        """The options."""

        limit: int = 3

    class State(msgspec.Struct):
        """What it remembers."""

        hits: int = 0

    config: Config
    state: State

    def before_finish(self, event: cmdc.BeforeFinish, context: cmdc.PluginContext) -> None:
        """Count."""
        assert_type(self.config.limit, int)
        self.state.hits += self.config.limit
        self.state.hits = "many"  # wrong


class Plain(cmdc.Plugin):
    """As ever."""

    class Config(msgspec.Struct, frozen=True):
        """The options."""

        limit: int = 3

    def before_finish(self, event: cmdc.BeforeFinish, context: cmdc.PluginContext) -> None:
        """Look at an option."""
        assert_type(self.config, Any)


class Alone(cmdc.Plugin[Limits]):
    """With options alone."""

    def before_finish(self, event: cmdc.BeforeFinish, context: cmdc.PluginContext) -> None:
        """Look at an option."""
        assert_type(self.config, Limits)


cmdc.create_agent(model="openai:gpt-4o-mini", plugins=[Guard, Nested(limit=4), Plain, Alone()])
cmdc.create_agent(model="openai:gpt-4o-mini", plugins=[(Guard, {"denied": ["curl"]}), "a:Guard"])
cmdc.create_agent(model="openai:gpt-4o-mini", plugins=[Limits()])  # wrong
