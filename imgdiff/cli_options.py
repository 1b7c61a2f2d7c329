"""Types of options that several commands have."""

from __future__ import annotations

from typing import Any

import click


class CacheDirectory(click.Path):
    """A directory; an empty word would be the working directory, which nobody means."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a path; an empty one fails."""
        if value == "":
            self.fail("it is empty; name a directory, or say --no-cache", param, ctx)
        return super().convert(value, param, ctx)
