"""For tests and benchmarks, of this wheel and of others: stores with something in them."""

from rookhold_store.testing.jobs import (
    Jobs,
    TickingClock,
    anything_binds,
    tampering_connection,
)

__all__ = ["Jobs", "TickingClock", "anything_binds", "tampering_connection"]
