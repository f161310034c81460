"""`python -m rookhold_cli` is the same as `rookhold`."""

import sys

from rookhold_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
