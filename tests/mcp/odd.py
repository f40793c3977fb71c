"""An MCP server that answers what it is given: ``python tests/mcp/odd.py ANSWERS``.

ANSWERS is a JSON object: for a method, or ``tools/call NAME``, a result, or a text that is sent as
the whole line, in which ``"@id"`` stands for the request's number and ``@fill`` for 17 MiB.
"""

import json
import os
import sys

VERSION = "2025-11-25"
FACTS = {"name": "odd", "version": "1"}
FILL = "x" * 17 * 2**20
OPENED = {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": FACTS}


def line_for(message, answers):
    """Return the line that answers a request."""
    method, params = message["method"], message.get("params", {})
    key = f"{method} {params.get('name')}" if method == "tools/call" else method
    answer = answers.get(key, OPENED if method == "initialize" else None)
    if isinstance(answer, str):
        return answer.replace('"@id"', json.dumps(message["id"])).replace("@fill", FILL)
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if answer is None:
        return json.dumps({**head, "error": {"code": -32601, "message": "Method not found"}})
    return json.dumps({**head, "result": answer})


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for line in sys.stdin:
        one = json.loads(line)
        if "id" in one and "method" in one:
            os.write(1, line_for(one, given).encode() + b"\n")
