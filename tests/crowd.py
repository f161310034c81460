"""A gateway and its tenants, as a test of the queue sees them: who waits, runs, is refused."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gateway import Gateway, eventually

from rookhold import Rookhold
from rookhold.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rookhold.results import JobDetail

SECONDS = 60
SLEEP = "exec sleep 60"
LIMITS = {"wall_seconds": 120, "mem_mb": 16}
SETTINGS = {
    "ROOKHOLD_RATE_PER_MIN": "1000000",
    # A job that is not over is charged 32 MiB, which need not be there.
    "ROOKHOLD_STORAGE_TENANT_MB": "65536",
    "ROOKHOLD_STORAGE_GLOBAL_MB": "262144",
}


class Crowd:
    """One gateway with a key for each tenant; `stop` and `start` it again as you like."""

    def __init__(
        self,
        home: Path,
        tenants: Sequence[str],
        *,
        sandbox: str = "off",
        settings: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.gateway = Gateway(home, sandbox=sandbox, **SETTINGS, **(settings or {}), **more)
        self.tenants = tenants
        keys = [f"{tenant}:{self.key(tenant)}" for tenant in tenants]
        self.gateway.settings["ROOKHOLD_API_KEYS"] = ",".join(keys)
        self._clients: dict[str, Rookhold] = {}
        self._open = ExitStack()

    def key(self, tenant: str) -> str:
        return f"{self.gateway.api_key}-{tenant}"

    def start(self) -> Crowd:
        self.gateway.start()
        return self

    def stop(self) -> int:
        self.disconnect()
        return self.gateway.stop()

    def kill(self) -> None:
        self.disconnect()
        self.gateway.kill()

    def disconnect(self) -> None:
        """Close every client; the next that is asked for is a new one."""
        self._open.close()
        self._clients.clear()

    def client(self, tenant: str) -> Rookhold:
        if tenant not in self._clients:
            client = Rookhold(f"http://{self.gateway.address}", self.key(tenant), timeout=120)
            self._clients[tenant] = self._open.enter_context(client)
        return self._clients[tenant]

    def submit(self, tenant: str, code: str = "true", *, mem_mb: int = 16, **more: Any) -> str:
        limits = LIMITS | {"mem_mb": mem_mb}
        return self.client(tenant).submit("bash", code, limits=limits, **more).job_id

    def submit_many(self, tenant: str, count: int, code: str = "true") -> list[str]:
        return [self.submit(tenant, code) for _ in range(count)]

    def refusal(self, tenant: str) -> str:
        """The code with which one more job of this tenant is refused; 'accepted' if it is not."""
        try:
            self.submit(tenant, SLEEP)
        except ApiError as error:
            return error.code
        return "accepted"

    def fill(self, tenants: Iterable[str]) -> int:
        """Submit by turns until the queue is full for all of them; how many were accepted."""
        accepted = 0
        open_to = list(tenants)
        while open_to:
            for tenant in tuple(open_to):
                code = self.refusal(tenant)
                accepted += code == "accepted"
                if code != "accepted":
                    open_to.remove(tenant)
        return accepted

    def hold(self, tenant: str, count: int, **more: Any) -> list[str]:
        """Keep this many workers busy until these jobs are cancelled."""
        held = [self.submit(tenant, SLEEP, **more) for _ in range(count)]
        for job_id in held:
            assert eventually(
                SECONDS, lambda job_id=job_id: self.status(tenant, job_id) != "queued"
            )
        return held

    def cancel(self, tenant: str, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.client(tenant).cancel(job_id)

    def status(self, tenant: str, job_id: str) -> str:
        return self.client(tenant).job(job_id).status

    def began(self, tenant: str, job_id: str) -> bool:
        return self.status(tenant, job_id) != "queued"

    def over(self, tenant: str, job_id: str) -> JobDetail:
        """The job, once it has ended."""
        self.client(tenant).wait(job_id, SECONDS)
        return self.client(tenant).job(job_id)

    def kinds(self, tenant: str, job_id: str) -> list[str]:
        return [event.kind for event in self.client(tenant).events(job_id)]

    def scheduler(self, tenant: str) -> dict[str, Any]:
        return dict(self.client(tenant).status().scheduler)

    def depth(self, *tenants: str) -> int:
        """How many jobs wait, of these or of all."""
        return sum(self.scheduler(each)["queue_depth"] for each in tenants or self.tenants)

    def running(self, *tenants: str) -> int:
        return sum(self.scheduler(each)["running"] for each in tenants or self.tenants)

    def clear(self) -> None:
        """Cancel whatever is not over, and wait until nobody has anything."""
        for status in ("queued", "running"):  # first what waits, so that it never runs
            for tenant in self.tenants:
                mine = self.client(tenant).jobs(status=status, page_size=500)
                self.cancel(tenant, [job.job_id for job in mine])
        assert eventually(SECONDS, lambda: self.depth() == self.running() == 0)

    def __enter__(self) -> Crowd:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()
        self.gateway.__exit__(kind, error, trace)
