"""What hypercorn lacks of the promised limits, by subclassing its server and HTTP/1 protocol.

The minor version of hypercorn is pinned for this package; it is the only place that knows it.
"""

from rookhold_server.http.transport.connection import ClientGoneError
from rookhold_server.http.transport.limits import TransportLimits
from rookhold_server.http.transport.server import Server, bind

__all__ = ["ClientGoneError", "Server", "TransportLimits", "bind"]
