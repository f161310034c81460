"""`python -m rookhold_server`."""

import os
import sys

from rookhold_server import supervisor


def main() -> int:
    """Become the root process of a gateway, or its server; each loads only what is its own."""
    if len(sys.argv) == 1 and supervisor.wanted(os.environ):
        from rookhold_server.supervisor.main import main as supervise

        return supervise(os.environ)
    from rookhold_server.serve import main as serve

    return serve()


if __name__ == "__main__":
    raise SystemExit(main())
