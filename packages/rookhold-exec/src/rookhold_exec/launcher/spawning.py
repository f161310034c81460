"""What the server and a root supervisor say to each other about launchers.

One SOCK_SEQPACKET message a turn, in the launcher protocol's own encoding. The server asks for a
launcher, and may have the one it was given killed; it cannot say anything about what is started.
Standard library only: the supervisor imports this and little else.
"""

from __future__ import annotations

GRANT = "grant"  # supervisor -> server, once and first: what root has found; with the listener
LAUNCH = "launch"  # server -> supervisor: a launcher, please; there is at most one at a time
LAUNCHED = "launched"  # supervisor -> server: its pid; with its socket and its process descriptor
REFUSED = "refused"  # supervisor -> server: no launcher; errno
KILL = "kill"  # server -> supervisor: end the launcher of this pid for certain
