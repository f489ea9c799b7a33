"""How the command line ends when something goes wrong."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

import forestmix as fmx


class ErrorReportingGroup(TyperGroup):
    """Commands whose expected errors are one line without a traceback, and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except fmx.ForestmixError as error:
            typer.echo(f"Error: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            # 1 would say that a claim failed; this is what shells use.
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(130) from error
