"""Files of the cache: written under another name and renamed when whole, so that nobody ever sees a part."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from imgdiff.errors import CacheError

TEMPORARY: Final = ".writing-"
HINT: Final = "Name another directory with --cache-dir, or go without with --no-cache, which takes TMPDIR's."


def trouble(directory: Path, error: OSError) -> CacheError:
    """Return the one sentence for a cache directory that the system refuses."""
    return CacheError(f"The cache directory {directory} can't be used: {error.strerror or error}.", HINT)


@contextlib.contextmanager
def fresh(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a new file in ``directory`` under a name that no reader looks at; it is gone afterwards unless renamed.

    Raises CacheError where the system refuses, also while the block writes.
    """
    path: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=directory)
        path = Path(name)
        with os.fdopen(handle, "wb", buffering=1 << 20) as file:
            yield file, path
    except OSError as error:
        raise trouble(directory, error) from error
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
