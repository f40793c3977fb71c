"""The module-level functions as coroutines: ``from cmdc_runtime import aio``.

They are the methods of one client that has a connection for each event loop that uses it. A
connection ends with its loop; ``close`` ends it earlier, and with the last one the private daemon,
which otherwise stays until the program ends.
"""

import atexit
from typing import Final

from cmdc_runtime.client.async_client import AsyncClient
from cmdc_runtime.client.link import LoopLinks
from cmdc_runtime.client.owner import of_owner
from cmdc_runtime.client.parallel import AsyncParallel
from cmdc_runtime.client.runner import AsyncRunner

_links: Final = LoopLinks()
_client: Final = AsyncClient(connector=_links)

create_agent = _client.create_agent
prompt = of_owner(_client.prompt)
collect_reply = of_owner(_client.collect_reply)
run = of_owner(_client.run)
stream = of_owner(_client.stream)
stream_events = of_owner(_client.stream_events)
checkpoint = of_owner(_client.checkpoint)
list_checkpoints = of_owner(_client.list_checkpoints)
load_checkpoint = of_owner(_client.load_checkpoint)
delete_checkpoint = of_owner(_client.delete_checkpoint)
resume_session = of_owner(_client.resume_session)
steer = of_owner(_client.steer)
abort = of_owner(_client.abort)
stop = of_owner(_client.stop)
subscribe = of_owner(_client.subscribe)
subscribe_group = _client.subscribe_group
subscribe_all = _client.subscribe_all
unsubscribe = of_owner(_client.unsubscribe)
last_index = of_owner(_client.last_index)
session_id = _client.session_id
agent_pid = of_owner(_client.agent_pid)
status = of_owner(_client.status)
list_sessions = _client.list_sessions
tree = _client.tree
messages = of_owner(_client.messages)
approve = of_owner(_client.approve)
reject = of_owner(_client.reject)
user_respond = of_owner(_client.user_respond)
attach_tool = of_owner(_client.attach_tool)
attach_tools = of_owner(_client.attach_tools)
detach_tool = of_owner(_client.detach_tool)
detach_tools = of_owner(_client.detach_tools)
replace_tools = of_owner(_client.replace_tools)
attach_plugin = of_owner(_client.attach_plugin)
update_plugin = of_owner(_client.update_plugin)
detach_plugin = of_owner(_client.detach_plugin)
switch_model = of_owner(_client.switch_model)
monitor = of_owner(_client.monitor)
demonitor = of_owner(_client.demonitor)
close = _client.close


class Runner(AsyncRunner):
    """Runs strategies, with the client of this module."""

    _default = _client


class Parallel(AsyncParallel):
    """Asks several agents at once, with the client of this module."""

    _default = _client


atexit.register(_links.sweep)

__all__ = [
    "Parallel",
    "Runner",
    "abort",
    "agent_pid",
    "approve",
    "attach_plugin",
    "attach_tool",
    "attach_tools",
    "checkpoint",
    "close",
    "collect_reply",
    "create_agent",
    "delete_checkpoint",
    "demonitor",
    "detach_plugin",
    "detach_tool",
    "detach_tools",
    "last_index",
    "list_checkpoints",
    "list_sessions",
    "load_checkpoint",
    "messages",
    "monitor",
    "prompt",
    "reject",
    "replace_tools",
    "resume_session",
    "run",
    "session_id",
    "status",
    "steer",
    "stop",
    "stream",
    "stream_events",
    "subscribe",
    "subscribe_all",
    "subscribe_group",
    "switch_model",
    "tree",
    "unsubscribe",
    "update_plugin",
    "user_respond",
]
