"""The baseline: Starlette, hypercorn, bubblewrap. It queues nothing, stores nothing, signs nothing.

One request brings the code and gets the output. As many jobs at once as there are CPUs; the others
wait. No authentication, no limits but the time, no filter, no evidence. It is meant to be as quick
as such a server can easily be: no thread for a child, and nothing on the road that is not needed.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the baseline is written as most would write it
import json
import os
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - Starlette looks at annotations
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from benchmarks import bubblewrap
from benchmarks.programs import BY_NAME, ENVIRONMENT

WALL_SECONDS = 10.0


class Sandboxes:
    """Runs code, a few at a time."""

    def __init__(self, bwrap: str) -> None:
        self._slots = asyncio.Semaphore(max(2, len(os.sched_getaffinity(0))))
        self._commands = {
            name: bubblewrap.wrapped(bwrap, [program.path(), *program.options, "-c"])
            for name, program in BY_NAME.items()
            if name in {"python", "bash"}
        }

    async def run(self, language: str, code: str) -> dict[str, object]:
        async with self._slots:
            child = await asyncio.create_subprocess_exec(
                *self._commands[language],
                code,
                env=ENVIRONMENT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(WALL_SECONDS):
                    stdout, stderr = await child.communicate()
            except TimeoutError:
                child.kill()
                stdout, stderr = await child.communicate()
        return {
            "exit_code": child.returncode,
            "stdout": stdout.decode("utf-8", "replace"),
            "stderr": stderr.decode("utf-8", "replace"),
        }


def application(sandboxes: Sandboxes) -> Starlette:
    async def run(request: Request) -> Response:
        body = await request.json()
        return JSONResponse(await sandboxes.run(body["language"], body["code"]))

    async def healthz(request: Request) -> Response:
        del request
        return PlainTextResponse("ok")

    return Starlette(
        routes=[Route("/run", run, methods=["POST"]), Route("/healthz", healthz, methods=["GET"])]
    )


async def main(listener: int) -> None:
    if sys.version_info < (3, 12):  # from 3.12 on it is the default; before, a thread waits
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    bwrap = bubblewrap.find()
    if bwrap is None:
        raise SystemExit("bubblewrap is not installed")
    config = Config()
    config.bind = [f"fd://{listener}"]
    config.errorlog = None
    await serve(application(Sandboxes(bwrap)), config)  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(main(int(json.loads(sys.argv[1]))))
