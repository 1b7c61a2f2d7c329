"""Which eager modules a run can do without: those that only imports under a condition lead to."""

from __future__ import annotations

import pytest

from tests.trace.world import World, site


def world(body: str, **files: str) -> World:
    more = {f"{name}.py": text for name, text in {"x": "", "y": "import x\n", **files}.items()}
    return World(site({"app.py": body, **more}))


def conditional(made: World, name: str) -> bool:
    path = f"usr/lib/python3.12/site-packages/{name}.py"
    assert made.level(path) == "eager"
    return made.trace.roles["main"].conditional(path.encode())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import x\n", False),
        ("try:\n    import x\nexcept ImportError:\n    pass\n", True),
        ("import sys\nif sys.argv:\n    import x\n", True),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import x\n", True),
        ("try:\n    import x\nexcept ImportError:\n    pass\nimport x\n", False),
        ("try: import x; import y\nexcept ImportError: pass\n", True),
        ("import y\n", False),  # and y imports x
        ("try:\n    import y\nexcept ImportError:\n    pass\n", True),
        ("class C:\n    import x\n", False),
    ],
)
def test_a_module_is_conditional_where_every_way_to_it_is(body: str, expected: bool) -> None:
    assert conditional(world(body), "x") is expected


def test_a_way_without_condition_through_a_conditional_module_counts_from_there_only() -> None:
    made = world("try:\n    import y\nexcept ImportError:\n    pass\nimport z\n", z="import x\n")
    assert conditional(made, "y") is True
    assert conditional(made, "x") is False


def test_what_is_no_module_is_not_known_to_be_conditional() -> None:
    made = world("import x\n")
    assert made.trace.roles["main"].conditional(b"usr/bin/python3.12") is False
    assert made.trace.roles["main"].conditional(b"no/such/path") is False
