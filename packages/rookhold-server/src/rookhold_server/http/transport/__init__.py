"""What hypercorn lacks of the promised limits, by subclassing its server and HTTP/1 protocol.

TLS (`channel`) and HTTP/2 (`http2`) are ours, on `ssl` and h2.

The minor version of hypercorn is pinned for this package; it is the only place that knows it.
"""

from rookhold_server.http.transport.gone import ClientGoneError
from rookhold_server.http.transport.limits import TransportLimits
from rookhold_server.http.transport.server import Server, bind
from rookhold_server.http.transport.tunnel import SWITCH, Tunnel

__all__ = ["SWITCH", "ClientGoneError", "Server", "TransportLimits", "Tunnel", "bind"]
