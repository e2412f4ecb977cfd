"""`python -m putback.mcp_server`."""

from putback.mcp_server.main import main

main()
