"""`rookhold serve`: the gateway, configured by its variables and nothing else."""

from __future__ import annotations

import click

from rookhold_cli.extras import load


@click.command("serve")
def command() -> int:
    """Serve a gateway until SIGTERM or Ctrl-C, configured by ROOKHOLD_* variables.

    As root in production it needs ROOKHOLD_USER, the account that the HTTP server runs as; only a
    small process that starts sandboxes then stays root.

    For trying things out, `rookhold dev` needs no configuration.
    """
    server = load("rookhold_server.serve", what="serving a gateway", extra="server")
    ended: int = server.main([])
    return ended
