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
abort = of_owner(client.abort)
stop = of_owner(client.stop)
subscribe = of_owner(client.subscribe)
subscribe_all = client.subscribe_all
unsubscribe = of_owner(client.unsubscribe)
last_index = of_owner(client.last_index)
session_id = client.session_id
agent_pid = of_owner(client.agent_pid)
status = of_owner(client.status)
list_sessions = client.list_sessions
tree = client.tree
messages = of_owner(client.messages)
monitor = of_owner(client.monitor)
demonitor = of_owner(client.demonitor)
