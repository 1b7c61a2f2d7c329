"""What of an image is compared with a wheel, and how a report says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from imgdiff.model import Attribution, Blindspot, Integrity, Side, Texts, Trace, Tree, Wheel


class Installed(msgspec.Struct, frozen=True):  # holds live objects: never serialised
    """An image with the wheel in place of what it has of that distribution.

    ``paths`` is all that is compared, in both trees; ``sites`` where it is installed, ``versions`` what the image has
    there. ``texts`` has the contents that are neither the image's nor the wheel's. ``made`` counts, by what it is
    called, what the image has of an installer's making. ``notes`` is what does not fit in the wheel itself,
    ``caveats`` are about it. ``unchanged``: the image is just that.
    """

    wheel: Wheel
    tree: Tree
    paths: frozenset[bytes]
    sites: tuple[bytes, ...]
    versions: tuple[str, ...]
    texts: Texts
    made: Mapping[str, int]
    notes: tuple[Integrity, ...]
    caveats: tuple[str, ...]
    unchanged: bool

    def touches(self, path: bytes | None) -> bool:
        """Tell whether what lies at, above or below a path can be something that is compared (None: anywhere)."""
        if path is None or path in self.paths:
            return True
        above = path + b"/"
        if any(site.startswith(above) for site in self.sites):
            return True
        return any(each.startswith(above) or path.startswith(each + b"/") for each in self.paths)

    def narrowed(self, attribution: Attribution) -> Attribution:
        """Return the claims to what is compared alone."""
        claims = {path: claims for path, claims in attribution.claims.items() if path in self.paths}
        return msgspec.structs.replace(attribution, claims=claims)

    def concerning(self, notes: Iterable[Integrity]) -> Iterator[Integrity]:
        """Yield what of the image's notes is about the distribution."""
        for note in notes:
            if note.owner == self.wheel.name or note.path in self.paths:
                yield note

    def equal(self, side: Side) -> str:
        """Return what it means that nothing differs; ``side`` is the image's."""
        wheel = f"{self.wheel.name} {self.wheel.version}"
        return f"{side} holds exactly the files of the wheel {wheel}, with what an installer makes."

    def said(self, tree: Tree, attribution: Attribution, trace: Trace, side: Side) -> Iterator[str]:
        """Yield the caveats: what was compared, what was taken for an installer's, and where a role loads other files
        than these. All are the image's, whose side is ``side``."""
        name, version = self.wheel.name, self.wheel.version
        files = {path for path, entry in tree.entries.items() if entry.type in ("file", "symlink")}
        compared = len(files & self.paths)
        yield (
            f"Only {name} is compared: {compared:,} files of {side} ({', '.join(map(_shown, self.sites))}) with the "
            f"wheel; the other {len(files) - compared:,} files of {side}, and its config, are out of scope."
        )
        others = [each for each in self.versions if each != version]
        if others:
            yield f"The wheel is {name} {version}, and {side} has {' and '.join(others)}."
        if self.made:
            made = ", ".join(f"{what} ({count:,})" for what, count in sorted(self.made.items()))
            yield f"What an installer makes is in {side} and no difference, and is not counted as one: {made}."
        yield from self.caveats
        packages = {package for each in attribution.distributions if each.name == name for package in each.packages}
        elsewhere: dict[str, list[str]] = {}
        for role, traced in sorted(trace.roles.items()):
            for package in sorted(packages):
                found = traced.modules.get(package)
                if found is not None and found[1].path not in self.paths:
                    elsewhere.setdefault(f"{package} from {_shown(found[1].path)}", []).append(role)
        for what, roles in elsewhere.items():
            verb = "loads" if len(roles) == 1 else "load"
            yield f"{', '.join(roles)} {verb} {what}, which is none of the files that are compared."


def once(spots: Sequence[Blindspot], wheel: Side) -> list[Blindspot]:
    """Leave out what is said of the wheel's side and of the image's: both are that image, but for the wheel."""
    image: Side = "b" if wheel == "a" else "a"
    others = {spot for spot in spots if spot.image == image}
    return [spot for spot in spots if spot.image != wheel or msgspec.structs.replace(spot, image=image) not in others]


def _shown(path: bytes) -> str:
    return "/" + path.decode("utf-8", "backslashreplace")
