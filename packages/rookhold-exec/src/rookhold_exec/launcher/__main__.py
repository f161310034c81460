"""Entry of the launcher process: `python -I -S .../launcher/__main__.py`, its socket at 3."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])

from rookhold_exec.launcher.main import main

sys.exit(main())
