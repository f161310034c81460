"""The process that starts sandboxes, the supervisor of each, and their protocol.

Everything here but `client` runs in the launcher itself: the standard library and ctypes, with few
imports, because each of them is memory that every supervisor shares and pages that it copies.
"""
