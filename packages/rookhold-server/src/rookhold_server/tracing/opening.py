"""The tracer that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.errors import RequiredSettingError
from rookhold_server.tracing.spans import UNTRACED

if TYPE_CHECKING:
    from rookhold_server.config.tracing import TracingSettings
    from rookhold_server.tracing.spans import Tracer


def open_tracer(settings: TracingSettings | None, version: str) -> Tracer:
    """Raises RequiredSettingError where the extra that traces need is not installed."""
    if settings is None:
        return UNTRACED
    try:
        from rookhold_server.tracing.export import ExportingTracer  # takes long to load
    except ImportError:
        raise RequiredSettingError(
            "ROOKHOLD_OTEL_ENDPOINT", "needs the extra: pip install 'rookhold-server[otel]'"
        ) from None
    return ExportingTracer(
        endpoint=settings.endpoint,
        headers=settings.headers,
        sample_percent=settings.sample_percent,
        version=version,
    )
