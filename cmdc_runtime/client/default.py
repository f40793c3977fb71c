"""The module-level functions: the methods of one client that every thread of the process shares."""

from typing import Final

from cmdc_runtime.client.client import DefaultClient

client: Final = DefaultClient()

create_agent = client.create_agent
prompt = client.prompt
collect_reply = client.collect_reply
run = client.run
abort = client.abort
stop = client.stop
subscribe = client.subscribe
subscribe_all = client.subscribe_all
unsubscribe = client.unsubscribe
last_index = client.last_index
session_id = client.session_id
agent_pid = client.agent_pid
status = client.status
list_sessions = client.list_sessions
tree = client.tree
messages = client.messages
monitor = client.monitor
demonitor = client.demonitor
