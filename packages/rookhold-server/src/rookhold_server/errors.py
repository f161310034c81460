"""Why a start is refused. Messages name a variable or a rule, never a value or a path."""

from __future__ import annotations

from rookhold_types.errors import RookholdError


class StartRefusedError(RookholdError):
    """The server will not start like this; always raised as a subclass."""

    code = "start_refused"


class SettingError(StartRefusedError):
    """One environment variable stands in the way; `variable` is its name."""

    code = "setting"

    def __init__(self, variable: str, rule: str) -> None:
        super().__init__(f"{variable}: {rule}", variable=variable)
        self.variable = variable


class InvalidSettingError(SettingError):
    """The value does not parse or is out of range."""

    code = "setting_invalid"


class UnsupportedSettingError(SettingError):
    """The variable belongs to a feature that this version does not have."""

    code = "setting_unsupported"


class ConflictingSettingError(SettingError):
    """The value contradicts another setting."""

    code = "setting_conflict"


class RequiredSettingError(SettingError):
    """A decision is needed and was not made."""

    code = "setting_required"


class UnsafeSettingError(SettingError):
    """The value would expose the host or the tenants, and nobody acknowledged that."""

    code = "setting_unsafe"


class ProviderUnavailableError(SettingError):
    """The keys that access tokens are verified with cannot be had."""

    code = "oidc_provider_unavailable"


class UnsafeStateDirectoryError(StartRefusedError):
    """The state directory is not ours alone to write to; it is never repaired."""

    code = "unsafe_state_directory"


class NotUsableError(StartRefusedError):
    """The account that the server runs as cannot use a directory that it needs."""

    code = "not_usable"


class UnsafeJobsRootError(StartRefusedError):
    """The jobs root is not a dedicated, private directory; it is never repaired."""

    code = "unsafe_jobs_root"


class SupervisorLostError(StartRefusedError):
    """The root process that is to start launchers for this server is not there."""

    code = "supervisor_lost"


class AddressUnavailableError(StartRefusedError):
    """The listener could not be bound to the address."""

    code = "address_unavailable"
