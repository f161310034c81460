"""What a job may use: the requested limits, their compiled bounds, and what was really enforced."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta, Struct

from rookhold_types.wire import View, Wire

KIB: Final = 1024
MIB: Final = 1024 * KIB

CODE_BYTES_MAX: Final = MIB
STDIN_BYTES_MAX: Final = MIB
INPUT_FILES_MAX: Final = 32
INPUT_FILE_BYTES_MAX: Final = 2 * MIB
INPUT_BYTES_MAX: Final = 4 * MIB
OUTPUT_FILES_MAX: Final = 32
OUTPUT_FILE_BYTES_MAX: Final = 2 * MIB
OUTPUT_FILES_BYTES_MAX: Final = 4 * MIB  # all collected files of a job together
OUTPUT_LINES_MAX: Final = 10_000  # retained records of one stream
OUTPUT_BYTES_MAX: Final = MIB  # retained raw bytes of one stream, line feeds included
OUTPUT_RECORD_BYTES_MAX: Final = 16 * KIB
BODY_BYTES_MAX: Final = 24 * MIB
PATH_BYTES_MAX: Final = 240
EVENT_BATCH_MAX: Final = 256
USAGE_SAMPLES_MAX: Final = 256

WORKSPACE_BYTES_MIN: Final = 64 * MIB  # unless the job may not have so much memory

MEM_MB_CEILING_DEFAULT: Final = 1024  # the server's own ceiling unless its operator says otherwise

U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class Bounds(Struct, frozen=True):
    """Default, floor and ceiling of one limit; zero never means unlimited."""

    default: int
    floor: int
    ceiling: int

    def clamp(self, value: int) -> int:
        return max(self.floor, min(value, self.ceiling))


LIMIT_BOUNDS: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "wall_seconds": Bounds(15, 1, 300),
        "cpu_seconds": Bounds(10, 1, 240),
        "mem_mb": Bounds(256, 16, 4096),
        "max_pids": Bounds(128, 8, 1024),
        "max_file_mb": Bounds(16, 1, 512),
    }
)


class Limits(Wire, frozen=True, kw_only=True):
    """What one job asks for. Any 32-bit value decodes; `clamp` brings it within the bounds."""

    wall_seconds: U32 = LIMIT_BOUNDS["wall_seconds"].default
    cpu_seconds: U32 = LIMIT_BOUNDS["cpu_seconds"].default
    mem_mb: U32 = LIMIT_BOUNDS["mem_mb"].default
    max_pids: U32 = LIMIT_BOUNDS["max_pids"].default
    max_file_mb: U32 = LIMIT_BOUNDS["max_file_mb"].default  # of one file
    allow_network: bool = False


class RequestedLimits(View, frozen=True, kw_only=True):
    """The limits that a receipt says were asked for, unclamped: `Limits` for readers."""

    wall_seconds: int | None = None
    cpu_seconds: int | None = None
    mem_mb: int | None = None
    max_pids: int | None = None
    max_file_mb: int | None = None
    allow_network: bool | None = None


class LimitEnforcement(View, frozen=True, kw_only=True):
    """Which limits were observed in force for the whole job; a limit of one process is none."""

    wall: bool = False
    cpu: bool = False
    mem: bool = False
    pids: bool = False
    file: bool = False

    @classmethod
    def none(cls) -> "LimitEnforcement":
        return cls()


class EffectiveLimits(View, frozen=True, kw_only=True):
    """The limits as enforced; None where one was not, or where the job never became ready.

    `allow_network` is the observed posture, not a permission: False where the network was cut off,
    True with the host's network.
    """

    wall_seconds: int | None = None
    cpu_seconds: int | None = None
    mem_mb: int | None = None
    max_pids: int | None = None
    max_file_mb: int | None = None
    allow_network: bool | None = None

    @classmethod
    def none(cls) -> "EffectiveLimits":
        return cls()

    @classmethod
    def observed(
        cls, clamped: Limits, enforced: LimitEnforcement, *, network: bool | None
    ) -> "EffectiveLimits":
        """Return what to claim for `clamped` limits of which only `enforced` were in force."""
        return cls(
            wall_seconds=clamped.wall_seconds if enforced.wall else None,
            cpu_seconds=clamped.cpu_seconds if enforced.cpu else None,
            mem_mb=clamped.mem_mb if enforced.mem else None,
            max_pids=clamped.max_pids if enforced.pids else None,
            max_file_mb=clamped.max_file_mb if enforced.file else None,
            allow_network=network,
        )


def memory_charge_mb(mem_mb: int, ceiling: int = MEM_MB_CEILING_DEFAULT) -> int:
    """Return the memory a job is admitted with, at most the server's ceiling (16 to 4096)."""
    return LIMIT_BOUNDS["mem_mb"].clamp(min(mem_mb, ceiling))


def workspace_bytes(clamped: Limits, *, charged: bool) -> int:
    """Return the size of a job's scratch space: two of its largest files, at least 64 MiB.

    It is memory, so that it has an end at the job's own: where its pages are charged to the job, at
    half of that, and where they are not, they come on top.
    """
    most = clamped.mem_mb * MIB
    return min(
        max(WORKSPACE_BYTES_MIN, 2 * clamped.max_file_mb * MIB), most // 2 if charged else most
    )


def clamp(limits: Limits, mem_ceiling_mb: int = MEM_MB_CEILING_DEFAULT) -> Limits:
    """Return `limits` within the compiled bounds and under the server's memory ceiling."""
    return Limits(
        wall_seconds=LIMIT_BOUNDS["wall_seconds"].clamp(limits.wall_seconds),
        cpu_seconds=LIMIT_BOUNDS["cpu_seconds"].clamp(limits.cpu_seconds),
        mem_mb=memory_charge_mb(limits.mem_mb, mem_ceiling_mb),
        max_pids=LIMIT_BOUNDS["max_pids"].clamp(limits.max_pids),
        max_file_mb=LIMIT_BOUNDS["max_file_mb"].clamp(limits.max_file_mb),
        allow_network=limits.allow_network,
    )
