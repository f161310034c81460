"""What the soak runs in the VM measured is said as that of the others is."""

from __future__ import annotations

from endurance.soaklog import say

__all__ = ["say"]
