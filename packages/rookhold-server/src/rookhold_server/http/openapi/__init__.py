"""The API described by itself: a table of what each route means, a document, and a page to read."""

from rookhold_server.http.openapi.document import build
from rookhold_server.http.openapi.page import Page, render

__all__ = ["Page", "build", "render"]
