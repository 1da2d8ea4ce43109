"""What several subcommands take on their command line."""

from __future__ import annotations

import click

session = click.argument("session", required=False)
session_dir = click.option(
    "--session-dir", metavar="DIR", help="Where sessions are kept. [default: in the user's state directory]"
)
