"""Recomputes everything that a store claims, and names what does not hold."""

from rookhold_store.verify.finding import Finding
from rookhold_store.verify.kept import Kept
from rookhold_store.verify.remembered import read_kept
from rookhold_store.verify.run import Progress, Verification, check_all, verify

__all__ = ["Finding", "Kept", "Progress", "Verification", "check_all", "read_kept", "verify"]
