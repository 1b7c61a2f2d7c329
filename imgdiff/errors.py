"""One base error with a hint, few children. The command line turns any of them into one sentence and exit code 2."""

from __future__ import annotations


class ImgdiffError(Exception):
    """Trouble that the user can do something about: ``str(error)`` is one sentence, ``hint`` says what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UnknownReferenceError(ImgdiffError):
    """A reference names nothing, or nothing that is an image."""


class ImageError(ImgdiffError):
    """An image is there and can't be used: schema 1, encrypted layers, a missing platform, broken JSON."""


class BlobError(ImageError):
    """A blob is missing, truncated, too long, or does not match its digest or diffID."""


class IncompleteError(BlobError):
    """An engine's archive lacks layers of its image; ``diff_ids`` are theirs."""

    def __init__(self, message: str, diff_ids: frozenset[str], hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.diff_ids = diff_ids


class ServiceError(ImgdiffError):
    """A registry or an engine can't be reached, refuses what is asked, or breaks off."""


class RecordingError(ImgdiffError):
    """A recording can't be read, is of no known format, or was made on another image."""


class RangeRefusedError(ServiceError):
    """A registry gives blobs whole, and no parts of them."""


class CacheError(ImgdiffError):
    """The cache directory can't be used."""


class UsageError(ImgdiffError):
    """The command was asked for something that makes no sense."""
