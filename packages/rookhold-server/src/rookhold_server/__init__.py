"""The Rookhold gateway. Start it with `python -m rookhold_server` or `rookhold serve`."""

from typing import Final

__version__: Final = "0.1.0"
