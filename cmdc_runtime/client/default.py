"""The module-level functions: the methods of one client that every thread of the process shares.

Given a session object of another client, they are that client's methods.
"""

from typing import Final

from cmdc_runtime.client.client import DefaultClient
from cmdc_runtime.client.owner import of_owner

client: Final = DefaultClient()

create_agent = client.create_agent
prompt = of_owner(client.prompt)
collect_reply = of_owner(client.collect_reply)
run = of_owner(client.run)
stream = of_owner(client.stream)
stream_events = of_owner(client.stream_events)
checkpoint = of_owner(client.checkpoint)
list_checkpoints = of_owner(client.list_checkpoints)
load_checkpoint = of_owner(client.load_checkpoint)
delete_checkpoint = of_owner(client.delete_checkpoint)
resume_session = of_owner(client.resume_session)
steer = of_owner(client.steer)
abort = of_owner(client.abort)
stop = of_owner(client.stop)
subscribe = of_owner(client.subscribe)
subscribe_group = client.subscribe_group
subscribe_all = client.subscribe_all
unsubscribe = of_owner(client.unsubscribe)
last_index = of_owner(client.last_index)
session_id = client.session_id
agent_pid = of_owner(client.agent_pid)
status = of_owner(client.status)
list_sessions = client.list_sessions
tree = client.tree
messages = of_owner(client.messages)
approve = of_owner(client.approve)
reject = of_owner(client.reject)
user_respond = of_owner(client.user_respond)
attach_tool = of_owner(client.attach_tool)
attach_tools = of_owner(client.attach_tools)
detach_tool = of_owner(client.detach_tool)
detach_tools = of_owner(client.detach_tools)
replace_tools = of_owner(client.replace_tools)
attach_plugin = of_owner(client.attach_plugin)
update_plugin = of_owner(client.update_plugin)
detach_plugin = of_owner(client.detach_plugin)
switch_model = of_owner(client.switch_model)
monitor = of_owner(client.monitor)
demonitor = of_owner(client.demonitor)
