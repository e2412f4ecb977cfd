"""`python -m putback`."""

from putback.cli.main import main

main()
