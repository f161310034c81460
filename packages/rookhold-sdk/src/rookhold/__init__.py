"""The Python client of a Rookhold gateway.

Importing this package loads nothing else; each public name loads its module when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._version import __version__

if TYPE_CHECKING:
    from .client import DEFAULT_BASE_URL, Rookhold
    from .errors import (
        ApiError,
        CapacityError,
        ConfigurationError,
        ForbiddenError,
        IntegrityError,
        InvalidRequestError,
        NotFoundError,
        PolicyError,
        ProtocolError,
        RedirectError,
        RookholdError,
        ServerError,
        TimedOutError,
        UnauthorizedError,
        UnreachableError,
        WaitExpiredError,
    )
    from .results import (
        TERMINAL,
        Artifact,
        AttestationStatus,
        CancelledJob,
        Download,
        Event,
        Job,
        JobDetail,
        Result,
        SubmittedJob,
        Violation,
    )
    from .service import Capabilities, Execution, Readiness, SigningKey, Status, WhoAmI

_HOMES: Final = {
    "client": ("DEFAULT_BASE_URL", "Rookhold"),
    "errors": (
        "ApiError",
        "CapacityError",
        "ConfigurationError",
        "ForbiddenError",
        "IntegrityError",
        "InvalidRequestError",
        "NotFoundError",
        "PolicyError",
        "ProtocolError",
        "RedirectError",
        "RookholdError",
        "ServerError",
        "TimedOutError",
        "UnauthorizedError",
        "UnreachableError",
        "WaitExpiredError",
    ),
    "results": (
        "TERMINAL",
        "Artifact",
        "AttestationStatus",
        "CancelledJob",
        "Download",
        "Event",
        "Job",
        "JobDetail",
        "Result",
        "SubmittedJob",
        "Violation",
    ),
    "service": ("Capabilities", "Execution", "Readiness", "SigningKey", "Status", "WhoAmI"),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DEFAULT_BASE_URL",
    "TERMINAL",
    "ApiError",
    "Artifact",
    "AttestationStatus",
    "CancelledJob",
    "Capabilities",
    "CapacityError",
    "ConfigurationError",
    "Download",
    "Event",
    "Execution",
    "ForbiddenError",
    "IntegrityError",
    "InvalidRequestError",
    "Job",
    "JobDetail",
    "NotFoundError",
    "PolicyError",
    "ProtocolError",
    "Readiness",
    "RedirectError",
    "Result",
    "Rookhold",
    "RookholdError",
    "ServerError",
    "SigningKey",
    "Status",
    "SubmittedJob",
    "TimedOutError",
    "UnauthorizedError",
    "UnreachableError",
    "Violation",
    "WaitExpiredError",
    "WhoAmI",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if (home := _HOME.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
