"""The wheel's version as a constant: asking the installed metadata would cost a slow import."""

from typing import Final

__version__: Final = "0.1.0"
