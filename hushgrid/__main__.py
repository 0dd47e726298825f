"""`python -m hushgrid`: the command line."""

import sys

from hushgrid.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
