"""MCP servers of a session: their processes, connections and tools."""
