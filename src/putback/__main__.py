"""The console entry point, and `python -m putback`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. What agents call all the time is found before the command line is even imported."""
    if sys.argv[1:2] == ["hook"] and 3 <= len(sys.argv) <= 4 and not sys.argv[2].startswith("-"):
        from putback.cli import hook

        hook.main(sys.argv[2:])
    from putback.cli.main import main as everything

    everything()


if __name__ == "__main__":
    main()
