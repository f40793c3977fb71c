# Made by `make sync` of cmdc_runtime/exports.py: change that, not this.
"""The module-level functions as coroutines: ``from cmdc_runtime import aio``.

They are the methods of one client that has a connection for each event loop that uses it. A
connection ends with its loop; ``close`` ends it earlier, and with the last one the private daemon,
which otherwise stays until the program ends. Given a session object of another client, they are
that client's methods.
"""

from cmdc_runtime.client.default import async_client as _client
from cmdc_runtime.client.default import of_owner
from cmdc_runtime.client.runner import AsyncParallel as Parallel
from cmdc_runtime.client.runner import AsyncRunner as Runner

abort = of_owner(_client.abort)
add_memory = of_owner(_client.add_memory)
add_skills_dirs = of_owner(_client.add_skills_dirs)
agent_pid = of_owner(_client.agent_pid)
approve = of_owner(_client.approve)
attach_mcp_server = of_owner(_client.attach_mcp_server)
attach_plugin = of_owner(_client.attach_plugin)
attach_tool = of_owner(_client.attach_tool)
attach_tools = of_owner(_client.attach_tools)
broadcast = _client.broadcast
checkpoint = of_owner(_client.checkpoint)
collect_reply = of_owner(_client.collect_reply)
create_agent = _client.create_agent
delete_checkpoint = of_owner(_client.delete_checkpoint)
demonitor = of_owner(_client.demonitor)
disable_buffer = of_owner(_client.disable_buffer)
enable_buffer = of_owner(_client.enable_buffer)
detach_mcp_server = of_owner(_client.detach_mcp_server)
detach_plugin = of_owner(_client.detach_plugin)
detach_tool = of_owner(_client.detach_tool)
detach_tools = of_owner(_client.detach_tools)
last_index = of_owner(_client.last_index)
list_checkpoints = of_owner(_client.list_checkpoints)
list_sessions = _client.list_sessions
load_checkpoint = of_owner(_client.load_checkpoint)
messages = of_owner(_client.messages)
monitor = of_owner(_client.monitor)
prompt = of_owner(_client.prompt)
reject = of_owner(_client.reject)
replace_tools = of_owner(_client.replace_tools)
resume_session = of_owner(_client.resume_session)
run = of_owner(_client.run)
session_id = _client.session_id
status = of_owner(_client.status)
steer = of_owner(_client.steer)
stop = of_owner(_client.stop)
stream = of_owner(_client.stream)
stream_events = of_owner(_client.stream_events)
subscribe = of_owner(_client.subscribe)
subscribe_all = _client.subscribe_all
subscribe_group = _client.subscribe_group
switch_model = of_owner(_client.switch_model)
tree = _client.tree
unsubscribe = of_owner(_client.unsubscribe)
update_plugin = of_owner(_client.update_plugin)
user_respond = of_owner(_client.user_respond)
close = _client.close
__all__ = [
    "Parallel",
    "Runner",
    "abort",
    "add_memory",
    "add_skills_dirs",
    "agent_pid",
    "approve",
    "attach_mcp_server",
    "attach_plugin",
    "attach_tool",
    "attach_tools",
    "broadcast",
    "checkpoint",
    "close",
    "collect_reply",
    "create_agent",
    "delete_checkpoint",
    "demonitor",
    "detach_mcp_server",
    "detach_plugin",
    "detach_tool",
    "detach_tools",
    "disable_buffer",
    "enable_buffer",
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
