"""Whether a layer's table of contents is asked for at all, and what is said of it in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imgdiff.errors import BlobError, RangeRefusedError
from imgdiff.layer._toc import Stated, UnfitError, read_table, stated
from imgdiff.layer._toc_entries import parse_table
from imgdiff.model import BelievedContents, Image, Layer, LayerIndex


class Trust:
    """Whether tables of contents are believed, as a user asks for it; ``refused`` gets the reasons, clauses behind "the
    layer was read whole, since ...", by diffID, for those layers whose manifest vouches for one."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}

    def caveats(self, images: Sequence[Image], indexes: Sequence[Sequence[LayerIndex]]) -> Iterator[str]:
        """Yield sentences on what was believed of both images' tables of contents, and what was not."""
        pairs = [
            (layer, index)
            for image, own in zip(images, indexes, strict=True)
            for layer, index in zip(image.layers, own, strict=True)
        ]
        counts = {_name(layer): index.believed.unhashed for layer, index in pairs if index.believed is not None}
        if counts:
            files = [f"{count:,} {'file' if count == 1 else 'files'} in layer {name}" for name, count in counts.items()]
            listed = ", ".join(files)
            yield f"Not hashed by imgdiff, but taken from layers' tables of contents: the content of {listed}."
        yield from dict.fromkeys(
            f"Layer {_name(layer)} was read whole: {self.refused[layer.diff_id]}."
            for layer, index in pairs
            if index.believed is None and layer.diff_id in self.refused and vouched(layer) is not None
        )
        for side, image in zip("ab", images, strict=True):
            if image.transfer is None:
                yield f"{side} does not come from a registry: --trust-toc changes nothing for it."
                continue
            without = sum(vouched(layer) is None for layer in image.layers)
            if without:
                yield (
                    f"{side}: the manifest vouches for no table of contents of {without} of {len(image.layers)} "
                    "layers: --trust-toc changes nothing for them."
                )


def _name(layer: Layer) -> str | None:
    return layer.diff_id if layer.descriptor is None else layer.descriptor.digest


def vouched(layer: Layer) -> Stated | None:
    """Return what a manifest states of a layer's table of contents, where it could be believed."""
    if layer.parts is None or layer.diff_id is None or layer.descriptor is None:
        return None
    return stated(layer.annotations)


def places(layer: Layer) -> BelievedContents | None:
    """Return where a layer's table of contents says that contents lie, for those whose digests are known otherwise;
    None where it is not there or no good. Raises ServiceError where the registry can't be reached."""
    what = vouched(layer)
    if what is None or layer.parts is None or layer.descriptor is None:
        return None
    try:
        with layer.parts() as parts:
            listed = parse_table(read_table(layer, what, parts))
    except (UnfitError, RangeRefusedError, BlobError):
        return None
    return BelievedContents(what.digest, layer.descriptor.digest, listed.places, 0, 0)
