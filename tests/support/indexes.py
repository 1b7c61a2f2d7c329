"""Layer indexes from tars through the standard library's tarfile: for tests of flattening, and slow on purpose."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping

from imgdiff.model import FileEntry, FileType, LayerIndex

_TYPES: Mapping[bytes, FileType] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}
_WHITEOUT, _OPAQUE = b".wh.", b".wh..wh..opq"


def clean(name: str) -> bytes:
    """Return a member's name, kept inside the root, without empty, ``.`` and ``..`` parts."""
    parts: list[bytes] = []
    for part in name.encode("utf-8", "surrogateescape").split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts)


def index_of(tar: bytes) -> LayerIndex:
    """Return the index of one uncompressed layer."""
    entries: list[FileEntry] = []
    whiteouts: list[bytes] = []
    opaques: list[bytes] = []
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            path = clean(member.name)
            parent, _, name = path.rpartition(b"/")
            if name == _OPAQUE:
                opaques.append(parent)
            elif name.startswith(_WHITEOUT):
                whiteouts.append((parent + b"/" if parent else b"") + name.removeprefix(_WHITEOUT))
            else:
                entries.append(_entry(archive, member, path))
    diff_id = f"sha256:{hashlib.sha256(tar).hexdigest()}"
    return LayerIndex(diff_id, tuple(entries), tuple(whiteouts), tuple(opaques), size=len(tar))


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> FileEntry:
    kind = _TYPES[member.type]
    digest = target = None
    if kind == "file":
        content = archive.extractfile(member)
        assert content is not None
        digest = hashlib.sha256(content.read()).digest()
    elif kind == "symlink":
        target = member.linkname.encode("utf-8", "surrogateescape")
    elif kind == "hardlink":
        target = clean(member.linkname)
    xattrs = sorted(
        (key.removeprefix("SCHILY.xattr.").encode(), value.encode("utf-8", "surrogateescape"))
        for key, value in member.pax_headers.items()
        if key.startswith("SCHILY.xattr.")
    )
    return FileEntry(
        path=path,
        type=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=round(member.mtime * 10**9),
        size=member.size if kind == "file" else 0,
        digest=digest,
        link_target=target,
        xattrs=tuple(xattrs),
    )
