"""The module-level functions as coroutines: ``from cmdc_runtime import aio``.

They are the methods of one client that has a connection for each event loop that uses it. A
connection ends with its loop; ``close`` ends it earlier, and with the last one the private daemon,
which otherwise stays until the program ends.
"""

import atexit
from typing import Final

from cmdc_runtime.client.async_client import AsyncClient
from cmdc_runtime.client.link import LoopLinks

_links: Final = LoopLinks()
_client: Final = AsyncClient(connector=_links)

create_agent = _client.create_agent
prompt = _client.prompt
collect_reply = _client.collect_reply
run = _client.run
abort = _client.abort
stop = _client.stop
subscribe = _client.subscribe
subscribe_all = _client.subscribe_all
unsubscribe = _client.unsubscribe
last_index = _client.last_index
session_id = _client.session_id
agent_pid = _client.agent_pid
status = _client.status
list_sessions = _client.list_sessions
tree = _client.tree
messages = _client.messages
monitor = _client.monitor
demonitor = _client.demonitor
close = _client.close

atexit.register(_links.sweep)

__all__ = [
    "abort",
    "agent_pid",
    "close",
    "collect_reply",
    "create_agent",
    "demonitor",
    "last_index",
    "list_sessions",
    "messages",
    "monitor",
    "prompt",
    "run",
    "session_id",
    "status",
    "stop",
    "subscribe",
    "subscribe_all",
    "tree",
    "unsubscribe",
]
