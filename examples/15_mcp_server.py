"""MCP: the model has the tools of a server, which this file is, too.

It needs the extra: pip install 'cmdc-runtime[mcp]'

CMDC_MODEL=openai:gpt-4o-mini python examples/15_mcp_server.py
"""

import os
import sys

import cmdc_runtime as cmdc

PRICES = {"apples": 3, "pears": 4}


def serve() -> None:
    """Be the server: one tool, by the protocol's own library."""
    from mcp.server import MCPServer  # noqa: PLC0415 - of the server's process alone

    server = MCPServer("shop")

    @server.tool()
    def price(fruit: str) -> str:
        """Return what a kilogram of a fruit costs, in euros."""
        return str(PRICES[fruit])

    server.run("stdio")


def main() -> None:
    """Ask a session that has the server; it is started by the first request."""
    shop = cmdc.McpServer("shop", command=[sys.executable, __file__, "serve"])
    with cmdc.create_agent(model=os.environ["CMDC_MODEL"], mcp_servers=[shop]) as session:
        print(session.run("What are pears?").text)
        (status,) = session.status().mcp_servers
        print(f"{status.name} is {status.state}: {', '.join(status.tools)}")

        session.detach_mcp_server("shop")
        print(session.run("And apples?").text)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
