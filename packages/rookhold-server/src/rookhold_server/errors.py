"""Why a start is refused, or a change of the credentials. Messages name a rule, never a value."""

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


class CredentialsError(RookholdError):
    """The credentials file stays as it is; always raised as a subclass."""

    code = "credentials"


class InvalidCredentialsError(CredentialsError):
    """The file, or what it would become, is not one that a server takes."""

    code = "credentials_invalid"


class MalformedCredentialError(CredentialsError):
    """What is asked for breaks a rule of credentials."""

    code = "credential_malformed"


class UnusableCredentialsError(CredentialsError):
    """The file or its pepper is missing, or cannot be read or written by this account."""

    code = "credentials_unusable"


class CredentialsBusyError(CredentialsError):
    """Somebody else is changing the file."""

    code = "credentials_busy"
    retryable = True


class UnknownCredentialError(CredentialsError):
    """No credential has this key id."""

    code = "credential_unknown"


class CredentialExistsError(CredentialsError):
    """Another credential has this key id; ids are not used again, also not after a revocation."""

    code = "credential_exists"


class CredentialEndedError(CredentialsError):
    """It has expired or been revoked, so that there is nothing to rotate."""

    code = "credential_ended"
