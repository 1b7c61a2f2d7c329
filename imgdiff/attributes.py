"""Which differences of a file's attributes a process can feel. Pure."""

from __future__ import annotations

from imgdiff.model import FileEntry


def attributes_bear(a: FileEntry, b: FileEntry) -> bool:
    """Tell whether attributes of the same file or directory differ in a way that a process can feel.

    A read or execute bit that one side has and the other lacks, another owner where not everybody may read (and
    enter), or another file capability. Setuid, setgid and sticky bits count as well.
    """
    read_or_execute = 0o555 | 0o7000
    if (a.mode ^ b.mode) & read_or_execute:
        return True
    everybody = 0o005 if a.type == "dir" else 0o004
    if (a.uid, a.gid) != (b.uid, b.gid) and (a.mode & b.mode & everybody) != everybody:
        return True
    return _capability(a) != _capability(b)


def _capability(entry: FileEntry) -> bytes | None:
    return dict(entry.xattrs).get(b"security.capability")
