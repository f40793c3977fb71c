"""An MCP server of the older era, of nothing but the standard library.

It is small enough for a crowd. ``--leave PATH`` has it leave behind a process that has left its
group, session and environment, with the path in its command; other arguments mark its own.
"""

import json
import os
import subprocess
import sys
import threading

VERSION = "2025-11-25"
NEVER = threading.Event()
tools = dict.fromkeys(["era", "pid", "grow", "steps", "wait", "sample"])
list_after_s = [0.0]
asking = {}
cancelled = {}
one_at_a_time = threading.Lock()


def send(**message):
    with one_at_a_time:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def notify(method, **params):
    send(method=f"notifications/{method}", params=params)


def call(request, name, arguments, token):  # noqa: PLR0911 - a tool each
    """Do what a tool does; return its text."""
    match name:
        case "era":
            return VERSION
        case "pid":
            return str(os.getpid())
        case "grow":
            tools[arguments["name"]] = None
            list_after_s[0] = arguments.get("list_after_s", 0.0)
            notify("tools/list_changed")
            return "grown"
        case "steps":
            for step in (1, 2, 3):
                notify("progress", progressToken=token, progress=step, total=3, message=f"s{step}")
            return "done"
        case "wait":
            open(arguments["started"], "w").close()  # noqa: PTH123 - nothing is read
            cancelled.setdefault(request, threading.Event()).wait()
            open(arguments["cancelled"], "w").close()  # noqa: PTH123 - as above
            return "never"
        case "sample":
            return sample()
    return f"I am {name}"


def sample():
    """Ask the model of whoever calls; return what comes of it."""
    event, answer = asking.setdefault("s1", (threading.Event(), {}))
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    params = {"messages": [message], "maxTokens": 5}
    send(id="s1", method="sampling/createMessage", params=params)
    event.wait()
    return json.dumps(answer)


def answered(request, params):
    name, meta = params["name"], params.get("_meta", {})
    text = call(request, name, params.get("arguments", {}), meta.get("progressToken"))
    send(id=request, result={"content": [{"type": "text", "text": text}]})


def take(message):
    request, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case None if request in asking:
            asking[request][1].update(message.get("error") or message["result"])
            asking[request][0].set()
        case "initialize":
            facts = {"name": "older", "version": "1"}
            able = {"tools": {"listChanged": True}}
            send(
                id=request,
                result={"protocolVersion": VERSION, "capabilities": able, "serverInfo": facts},
            )
        case "tools/list":
            schema = {"type": "object"}
            listed = [{"name": name, "description": name, "inputSchema": schema} for name in tools]
            args = {"id": request, "result": {"tools": listed}}
            threading.Timer(list_after_s[0], send, kwargs=args).start()
        case "tools/call":
            threading.Thread(target=answered, args=(request, params), daemon=True).start()
        case "notifications/cancelled":
            cancelled.setdefault(params["requestId"], threading.Event()).set()
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})


def leave(path):
    code = "import os, sys, time; os.setsid(); os.fork() and os._exit(0); time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", code, path], env={}, stdout=subprocess.DEVNULL).wait()


if __name__ == "__main__":
    if "--leave" in sys.argv:
        leave(sys.argv[sys.argv.index("--leave") + 1])
    for line in sys.stdin:
        take(json.loads(line))
