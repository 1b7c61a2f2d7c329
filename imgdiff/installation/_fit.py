"""Whether an installer would take a wheel at all for an image's platform (PyPA "Platform compatibility tags")."""

from __future__ import annotations

from imgdiff.model import Side, Texts, Tree, Wheel

# As uname names the machines that the OCI image spec names as Go does.
_MACHINES = {
    "amd64": ("x86_64",),
    "arm64": ("aarch64",),
    "386": ("i386", "i486", "i586", "i686"),
    "arm": ("armv6l", "armv7l", "armv8l"),
    "ppc64le": ("ppc64le",),
    "s390x": ("s390x",),
    "riscv64": ("riscv64",),
}
_SYSTEMS = ("linux", "manylinux", "musllinux")


def misfit(wheel: Wheel, files: Tree, texts: Texts, platform: str, side: Side) -> tuple[str, ...]:
    """Return a caveat where the wheel is for other platforms than the image (``os/arch[/variant]``) on that side. None
    where either does not say."""
    entry = files.get(b"site-packages/" + wheel.info + b"/WHEEL")
    text = None if entry is None or entry.digest is None else texts.get(entry.digest)
    machines = _MACHINES.get(platform.partition("/")[2].partition("/")[0])
    if text is None or machines is None or not platform.startswith("linux/"):
        return ()
    tags = _platforms(text.decode("utf-8", "replace"))
    if not tags or any(_fits(tag, machines) for tag in tags):
        return ()
    named = " and ".join(tags[:3]) + (f" and {len(tags) - 3} more" if len(tags) > 3 else "")
    return (f"The wheel is for {named}, and {side} for {platform}: no installer would take it there.",)


def _platforms(text: str) -> list[str]:
    """Return the platforms of a WHEEL file's tags (``PYTHON-ABI-PLATFORM``, each part can be several)."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "tag":
            found.update(dict.fromkeys(value.strip().rpartition("-")[2].split(".")))
    return [tag for tag in found if tag]


def _fits(tag: str, machines: tuple[str, ...]) -> bool:
    return tag == "any" or (tag.startswith(_SYSTEMS) and tag.endswith(tuple(f"_{each}" for each in machines)))
