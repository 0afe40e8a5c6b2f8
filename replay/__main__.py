"""`python -m kvlife.replay`: the command `kvlife` where the script is not on the path."""

import sys

from kvlife.replay.cli import main

if __name__ == "__main__":
    sys.exit(main())
