"""Flattening what the layer room really hands over: the same trees as from the standard library's tarfile."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgdiff.layer import index_layers
from imgdiff.sources import open_image
from imgdiff.store import Store
from imgdiff.tree import flatten
from tests.support.images import Compression, tar_bytes, write_layout
from tests.support.indexes import index_of
from tests.tree.test_tree_cases import CASES
from tests.tree.test_tree_rest import REFUSED


@pytest.mark.parametrize("name", [*CASES, *REFUSED])
def test_layers_from_an_image_come_to_the_same_tree(name: str, tmp_path: Path) -> None:
    layers = CASES[name][0] if name in CASES else REFUSED[name][0]
    tars = [tar_bytes(layer) for layer in layers]
    compression: Compression = "gzip" if len(name) % 2 else "zstd"
    write_layout(tmp_path / "image", tars, {}, compression)
    image = open_image(str(tmp_path / "image"))
    store = Store.open(tmp_path / "cache")
    try:
        tree = flatten(index_layers(image.layers, store, jobs=1))
    finally:
        store.close()
    expected = flatten([index_of(tar) for tar in tars])
    assert tree.entries == expected.entries
    assert dict(tree.hardlinks) == dict(expected.hardlinks)
    assert dict(tree.layers) == dict(expected.layers)
    assert {spot.path for spot in expected.blindspots} <= {spot.path for spot in tree.blindspots}
