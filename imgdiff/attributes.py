"""Which differences of a file's attributes a process can feel. Pure."""

from __future__ import annotations

from imgdiff.model import FileEntry


def attributes_bear(a: FileEntry, b: FileEntry, *, as_root: bool = True) -> bool:
    """Tell whether attributes of the same file or directory differ in a way that a process can feel.

    A read or execute bit that one side has and the other lacks, another owner where not everybody may read (and
    enter) or the file runs as its owner, or another file capability. Setuid, setgid and sticky bits count as well.
    ``as_root``: the processes of both images have root's rights, and may write anyway. Others feel another owner or
    write bit as well, unless everybody may write: whose they are is not asked, since a run can say so.
    """
    read_or_execute = 0o555 | 0o7000
    if (a.mode ^ b.mode) & read_or_execute:
        return True
    everybody = 0o005 if a.type == "dir" else 0o004
    privileged = a.type == "file" and a.mode & 0o6000
    other_owner = (a.uid, a.gid) != (b.uid, b.gid)
    if other_owner and (privileged or (a.mode & b.mode & everybody) != everybody):
        return True
    if not as_root and not a.mode & b.mode & 0o002 and (other_owner or (a.mode ^ b.mode) & 0o222):
        return True
    return _capability(a) != _capability(b)


def _capability(entry: FileEntry) -> bytes | None:
    return dict(entry.xattrs).get(b"security.capability")
