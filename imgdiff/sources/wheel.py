"""A wheel as one side: the files of one distribution as its publisher packed them (PyPA "Binary distribution format").

Its layer is a tar that is made while it is read: each member where an installer puts it, ``.data`` spread by scheme.
Nothing is unpacked to disk. A wheel that an installer would refuse, or could understand in two ways, is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from calendar import timegm
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from imgdiff.errors import BlobError, ImageError, ImgdiffError, UnknownReferenceError
from imgdiff.model import WHEEL_SOURCE, WHEEL_TOPS, Image, Layer, Wheel
from imgdiff.sources._files import open_regular, reason
from imgdiff.sources._platform import UNKNOWN
from imgdiff.sources._reference import Reference
from imgdiff.sources._text import listed, shown

SCHEMES: tuple[str, ...] = ("wheel",)
VERSION = 1
"""Version of the tar that is made of a wheel: where another one differs in a byte, this does."""

_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1  # general purpose bit flag (APPNOTE.TXT 4.4.4)
_MAX_MEMBERS = 1_000_000
_MAX_METADATA = 16 * 1024 * 1024  # bytes of a METADATA or WHEEL
_MAX_PLAIN = 1 << 30  # bytes that any wheel may unpack to; beyond it, so many times its own size
_MAX_RATIO = 100
_MAX_NAME = 4096
_CHUNK = 1 << 20
_FILE_NAME = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl", re.IGNORECASE)
_INFO = re.compile(r"(?P<name>[^-/]+)-(?P<version>[^-/]+)\.dist-info")
_FORMAT = re.compile(r"(\d+)\.\d+")
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeError,
    ValueError,
)
_HINT = "fetch it again: pip download --no-deps NAME==VERSION"


class _Member(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """One file of a wheel, and its path in the layer."""

    path: str
    info: zipfile.ZipInfo
    executable: bool


def recognises(reference: Reference) -> bool:
    """Tell a wheel by its scheme, else by the file's name."""
    if reference.scheme is not None:
        return reference.scheme in SCHEMES
    return reference.path.name.lower().endswith(".whl") and not reference.path.is_dir()


def read(reference: Reference, platform: str | None) -> Image:  # noqa: ARG001 - a wheel is for one platform or for any
    """Return a wheel as an image of one layer, with ``wheel`` set.

    Raises UnknownReferenceError where the file is no wheel, ImageError for one that can't be read, is encrypted, holds
    members of one name or names that lead out, would unpack to absurd sizes, or names two distributions.
    """
    path = reference.path
    where = shown(str(path))
    if path.is_dir():
        raise UnknownReferenceError(f"{where} is a directory, and a wheel is a file", "name the .whl file itself")
    if reference.tag or reference.digest:
        raise UnknownReferenceError(f"{where} is a wheel, which has no tags and no digest")
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            digest = f"sha256:{_digest(file)}"
            try:
                with zipfile.ZipFile(file) as archive:
                    wheel, caveats = _described(archive, _members(archive, status.st_size, where), path.name, where)
            except _DAMAGE as error:
                raise _damaged(where, error) from error
    except OSError as error:
        raise ImageError(f"{where} can't be read: {reason(error)}") from error
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return Image(
        reference=reference.given,
        source=WHEEL_SOURCE,
        manifest_digest=None,
        config_digest=None,
        platform=UNKNOWN,
        config=None,
        layers=(Layer(None, None, partial(_open, path, identity)),),
        caveats=caveats,
        wheel=msgspec.structs.replace(wheel, digest=digest, size=status.st_size),
    )


def _digest(file: BinaryIO) -> str:
    hasher = hashlib.sha256()
    while piece := file.read(_CHUNK):
        hasher.update(piece)
    return hasher.hexdigest()


def _damaged(where: str, error: Exception) -> ImgdiffError:
    if isinstance(error, zipfile.BadZipFile) and "not a zip" in str(error).lower():
        return UnknownReferenceError(f"{where} is no wheel: it is no zip archive", _HINT)
    return ImageError(f"{where} is a damaged wheel: {shown(str(error) or type(error).__name__)}", _HINT)


# --------------------------------------------------------------------------------------------------------------------
# What it holds
# --------------------------------------------------------------------------------------------------------------------


def _members(archive: zipfile.ZipFile, size: int, where: str) -> list[_Member]:
    """Return the files of a wheel, by their path in the layer; raise ImageError where installers could differ."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    if len(files) > _MAX_MEMBERS:
        raise ImageError(f"{where} has {len(files):,} members, which no wheel has")
    _check_sizes(files, size, where)
    names: set[str] = set()
    members: dict[str, _Member] = {}
    for info in files:
        _check_member(info, where)
        if info.filename in names:
            raise ImageError(f"{where} holds two members called {shown(info.filename)}")
        names.add(info.filename)
        placed = _Member(*_place(info, where))
        if placed.path in members:
            raise ImageError(f"{where} holds two members that are installed as {shown(placed.path)}")
        members[placed.path] = placed
    directories = {path[:at] for path in members for at in range(len(path)) if path[at] == "/"}
    for path in sorted(directories & members.keys()):
        raise ImageError(f"{where} holds {shown(path)} as a file and as a directory")
    return [members[path] for path in sorted(members)]


def _check_sizes(files: Sequence[zipfile.ZipInfo], size: int, where: str) -> None:
    """Refuse a zip bomb: members that share their bytes, or that unpack to many times the file."""
    end = 0
    for info in sorted(files, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise ImageError(f"{where} has members that overlap, as no wheel has them")
        end = info.header_offset + 30 + info.compress_size  # a local header has 30 bytes and the name
    plain = sum(info.file_size for info in files)
    if end > size or plain > max(_MAX_PLAIN, _MAX_RATIO * size):
        raise ImageError(f"{where} would unpack to {plain:,} bytes from {size:,}, which no wheel does")


def _check_member(info: zipfile.ZipInfo, where: str) -> None:
    name = info.filename
    if info.flag_bits & _ENCRYPTED:
        raise ImageError(f"{where} is encrypted ({shown(name)})")
    if info.compress_type not in _PLAIN:
        raise ImageError(f"{where} packs {shown(name)} in a way that installers don't read ({info.compress_type})")
    parts = name.split("/")
    if info.orig_filename != name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise ImageError(f"{where} holds a name that leads out or can be read in two ways: {shown(info.orig_filename)}")
    if len(name) > _MAX_NAME or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        raise ImageError(f"{where} holds a name that no file can have: {shown(name)}")
    if any(part.startswith(".wh.") for part in parts):
        raise ImageError(f"{where} holds a name that removes files in an image: {shown(name)}")


def _place(info: zipfile.ZipInfo, where: str) -> tuple[str, zipfile.ZipInfo, bool]:
    """Return the path in the layer, and whether an installer makes the file executable (as pip does it)."""
    mode = info.external_attr >> 16
    executable = bool(stat.S_ISREG(mode) and mode & 0o111)
    first, _, rest = info.filename.partition("/")
    if not first.endswith(".data") or not rest:
        return f"site-packages/{info.filename}", info, executable
    scheme, _, rest = rest.partition("/")
    if scheme not in WHEEL_TOPS or not rest:
        known = ", ".join(sorted(WHEEL_TOPS))
        raise ImageError(f"{where} holds {shown(info.filename)}, and a .data directory has {known} alone")
    return f"{WHEEL_TOPS[scheme]}/{rest}", info, executable


def _described(
    archive: zipfile.ZipFile, members: Sequence[_Member], file_name: str, where: str
) -> tuple[Wheel, tuple[str, ...]]:
    """Return what its metadata says, and caveats."""
    by_name = {member.info.filename: member.info for member in members}
    folders = sorted({name.partition("/")[0] for name in by_name if ".dist-info/" in name})
    folders = [folder for folder in folders if folder.endswith(".dist-info")]
    if not folders:
        raise UnknownReferenceError(f"{where} is no wheel: it has no .dist-info directory")
    if len(folders) > 1:
        raise ImageError(f"{where} has several .dist-info directories: {listed(folders)}")
    (folder,) = folders
    for wanted in ("METADATA", "WHEEL", "RECORD"):
        if f"{folder}/{wanted}" not in by_name:
            raise ImageError(f"{where} is no complete wheel: {shown(folder)} has no {wanted}")
    _check_format(_headers(archive, by_name[f"{folder}/WHEEL"], where), where)
    told = _headers(archive, by_name[f"{folder}/METADATA"], where)
    name, version = told.get("name", ""), told.get("version", "")
    if not name or not version:
        raise ImageError(f"METADATA in {where} states no {'version' if name else 'name'}")
    return _agreed(name, version, folder, file_name, where)


def _agreed(name: str, version: str, folder: str, file_name: str, where: str) -> tuple[Wheel, tuple[str, ...]]:
    """Hold the names of the dist-info and of the file against METADATA: another project is an error, as it is to pip,
    another version a caveat."""
    caveats = []
    for what, match in (
        (f"its directory {shown(folder)}", _INFO.fullmatch(folder)),
        (f"the file name {shown(file_name)}", _FILE_NAME.fullmatch(file_name)),
    ):
        if match is None:
            continue
        if _normalised(match["name"]) != _normalised(name):
            raise ImageError(f"METADATA in {where} names {shown(name)}, and {what} another distribution")
        if _comparable(match["version"]) != _comparable(version):
            caveats.append(f"METADATA of {{side}} states version {shown(version)}, and {what} {match['version']}.")
    return Wheel(_normalised(name), version, _encoded(folder), "", 0), tuple(map(shown, caveats))


def _check_format(headers: dict[str, str], where: str) -> None:
    match = _FORMAT.fullmatch(headers.get("wheel-version", ""))
    if match is None:
        raise ImageError(f"WHEEL in {where} states no version of the format")
    if match[1] != "1":
        raise ImageError(f"{where} is a wheel of format {match[0]}, and 1 is known")


def _headers(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> dict[str, str]:
    """Return the one-line headers of a metadata file by lower-case name, the first of each."""
    if info.file_size > _MAX_METADATA:
        raise ImageError(f"{shown(info.filename)} in {where} is {info.file_size:,} bytes long, which none is")
    headers: dict[str, str] = {}
    for line in archive.read(info).decode("utf-8", "backslashreplace").splitlines():
        if not line.strip():
            break
        key, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            headers.setdefault(key.strip().lower(), value.strip())
    return headers


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # PEP 503


def _comparable(version: str) -> str:
    return version.replace("_", "-").lower()  # a dash is an underscore in names of files and folders


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


# --------------------------------------------------------------------------------------------------------------------
# The layer
# --------------------------------------------------------------------------------------------------------------------


def _open(path: Path, identity: tuple[int, int, int, int]) -> BinaryIO:
    """Return the layer's tar from its first byte. Raises ImageError where the file is another one by now."""
    where = shown(str(path))
    file = open_regular(path)
    status = os.fstat(file.fileno())
    if (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) != identity:
        file.close()
        raise BlobError(f"{where} changed while it was read", "compare a file that rests")
    return cast("BinaryIO", _Tar(file, where))


class _Tar(io.RawIOBase):
    """The tar of a wheel, made piece by piece."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._pieces = _pieces(file, where)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # any writable buffer
        """Fill a part of the buffer; 0 at the end. Raises ImageError where the wheel is damaged."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._pieces.close()
        self._file.close()
        super().close()


def _pieces(file: BinaryIO, where: str) -> Generator[bytes, None, None]:
    try:
        with zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            for member in _members(archive, size, where):
                info = member.info
                header = tarfile.TarInfo(member.path)
                header.size = info.file_size
                header.mode = 0o755 if member.executable else 0o644
                header.mtime = max(0, timegm((*info.date_time, 0, 0, 0)))
                yield header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
                with archive.open(info) as stream:
                    left = info.file_size
                    while piece := stream.read(_CHUNK):
                        left -= len(piece)
                        yield piece
                if left:
                    raise ImageError(f"{where} is damaged: {shown(info.filename)} ends {left:,} bytes early", _HINT)
                yield bytes(-info.file_size % tarfile.BLOCKSIZE)
    except _DAMAGE as error:
        raise _damaged(where, error) from error
    yield bytes(2 * tarfile.BLOCKSIZE)
