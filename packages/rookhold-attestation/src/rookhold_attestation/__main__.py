"""`python -m rookhold_attestation`: the same program where scripts are not on the path."""

import sys

from .cli import main

sys.exit(main())
