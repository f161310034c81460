"""The HTTP side: one ASGI application, and the transport that serves it."""
