"""ELF files: what they refer to, and what in a changed one differs.

``facts`` reads with random access, ``Scanner`` in one pass; where one is not enough, its Unreadable has the reason
``SECOND_READ``. ``delta`` tells what differs.
"""

from imgdiff.kinds.elf.delta import delta
from imgdiff.kinds.elf.facts import facts
from imgdiff.kinds.elf.scanner import SECOND_READ, Scanner

VERSION = 2

__all__ = ["SECOND_READ", "VERSION", "Scanner", "delta", "facts"]
