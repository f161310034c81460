"""What a handler is told when there is nobody left to answer."""


class ClientGoneError(ConnectionError):
    """Raised to a handler that answers a peer which is no longer there."""
