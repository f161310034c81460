"""The wheel's version as a constant: asking the installed metadata would cost a slow import."""

__version__ = "0.1.0"
