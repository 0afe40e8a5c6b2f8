"""Where the command `kvlife` begins, as the script of that name or as `python -m kvlife.replay`."""

import sys


def main() -> int:
    """Load the command line and run it; returns its exit status."""
    try:
        # Here, as Ctrl-C may come while it loads.
        from kvlife.replay.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
