"""The MCP server: snapshots, and their restore in two steps, as tools for agents. The only importer of `mcp`.

One server has one workspace, given when it is started; no argument of a tool can name another.
"""
