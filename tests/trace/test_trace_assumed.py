"""What the user's word leaves out, and what it must not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.assuming import applied
from imgdiff.model import Assumed, AssumeRule, Condition, ModelTable, Profile, ProfileRole, RootGroup
from imgdiff.trace import trace
from imgdiff.trace.graph.dead_lines import dead_lines
from tests.trace.world import SITE, Facts, World, site

S = SITE.decode()
PROFILE = Profile(
    "test",
    "eng",
    (
        ProfileRole(
            "main", True, "runs", (RootGroup(("eng.core",), "core"), RootGroup(("eng.worker_a", "eng.worker_b"), "w"))
        ),
    ),
    assumes=(
        AssumeRule("platform", "a", ("eng.platforms",), ("eng.platforms.b", "eng.worker_b"), "one is loaded"),
        AssumeRule("platform", "b", ("eng.platforms",), ("eng.platforms.a", "eng.worker_a"), "one is loaded"),
    ),
    conditions=(
        Condition("eng.platforms.current", "is_a", "platform", ("a",), "it compares"),
        Condition("eng.platforms.current", "is_b", "platform", ("b",), "it compares"),
        Condition("eng.platforms.current", "is_any", "platform", ("a", "b"), "it compares"),
    ),
    model_tables=(
        ModelTable(
            "eng.registry",
            ("_*_MODELS",),
            "eng.models",
            "by name",
            ("base",),
            ("load_inner",),
            ("--draft*",),
            ("eng.configs",),
        ),
    ),
)
PLATFORMS = """
def plugin_a():
    return "eng.platforms.a.A"
def plugin_b():
    return "eng.platforms.b.B"
def resolve(name):
    import importlib
    return importlib.import_module(name.rpartition(".")[0])
resolve(plugin_a() or plugin_b())
class Current: pass
current = Current()
"""
REGISTRY = """
import importlib
_TEXT_MODELS = {
    "LlamaFor": ("llama", "LlamaFor"),
    "QwenFor": ("qwen", "QwenFor"),
    "LlavaFor": ("llava", "LlavaFor"),
    "Fallback": ("base", "Fallback"),
}
_ALL_MODELS = {**_TEXT_MODELS}
def load(arch):
    return importlib.import_module(f"eng.models.{_ALL_MODELS[arch][0]}")
load(NAME)
"""
FILES: dict[str, bytes | str] = {
    "eng/__init__.py": "",
    "eng/core.py": "import eng.platforms\nimport eng.registry\nimport eng.code\nDEVICE = 'b'\nOTHER = 'qwen'\n",
    "eng/code.py": "",
    "eng/platforms/__init__.py": PLATFORMS,
    "eng/platforms/a.py": "import eng.only_a\n",
    "eng/platforms/b.py": "import eng.only_b\n",
    "eng/only_a.py": "",
    "eng/only_b.py": "",
    "eng/worker_a.py": "",
    "eng/worker_b.py": "",
    "eng/registry.py": REGISTRY,
    "eng/models/__init__.py": "",
    "eng/models/llama.py": "import eng.models.helper\n",
    "eng/models/qwen.py": "",
    "eng/models/llava.py": "import eng.core\ndef make():\n    return eng.core.load_inner()\n",
    "eng/models/base.py": "",
    "eng/models/helper.py": "",
}


def world(
    said: Assumed,
    files: Mapping[str, bytes | str] | None = None,
    argv: tuple[str, ...] = ("python3.12", "-m", "eng.core"),
) -> World:
    return World(site({**FILES, **(files or {})}), argv=argv, profile=applied(PROFILE, said))


def on(value: str) -> Assumed:
    return Assumed((("platform", value),))


def model(*names: str, whole: bool = False) -> Assumed:
    return Assumed((), names, whole)


def level(made: World, module: str) -> str:
    return made.level(f"{S}/eng/{module}.py")


# Platforms ------------------------------------------------------------------------------------------------------------


def test_without_an_assumption_every_platform_counts() -> None:
    made = world(Assumed())
    assert {level(made, f"platforms/{name}") for name in "ab"} == {"deferred"}
    assert {level(made, f"worker_{name}") for name in "ab"} == {"eager"}


@pytest.mark.parametrize(("this", "other"), ["ab", "ba"])
def test_the_other_platforms_class_is_left_out_with_what_only_it_loads(this: str, other: str) -> None:
    made = world(on(this))
    assert level(made, f"platforms/{this}") == "deferred"
    assert level(made, f"only_{this}") == "deferred"
    assert level(made, f"worker_{this}") == "eager"
    for module in (f"platforms/{other}", f"only_{other}", f"worker_{other}"):
        assert level(made, module) in ("unreached", "unknown"), module


@pytest.mark.parametrize(
    "code",
    [
        "from eng.platforms import b\n",
        "def f():\n    from eng.platforms.b import B\nf()\n",
        "NAME = 'eng.platforms.b.B'\nimport importlib\nimportlib.import_module(NAME.rpartition('.')[0])\n",
        "import importlib\nimportlib.import_module('eng.platforms.b')\n",
        "import importlib\nimportlib.import_module(f'eng.platforms.{X}')\n",
        "from eng.platforms import current\nif current.is_a():\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif not current.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b() or X:\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b(1):\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_c():\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif other.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\ncurrent = fake()\nif current.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\ndef f(current):\n    if current.is_b():\n        import eng.platforms.b\nf(X)\n",
        "from eng.platforms import current\nfrom other import *\nif current.is_b():\n    import eng.platforms.b\n",
        "from other import current\nif current.is_b():\n    import eng.platforms.b\n",
        "import current\nif current.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b(): pass\nimport eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b(): import json\nelse:\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b(): X = 1; import eng.platforms.b\n",
        "from eng.platforms import current\nwhile current.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\ndef f():\n    if current.is_b():\n        return\n    import eng.platforms.b\nf()\n",
        "from eng.platforms import current\ndef f():\n    if current.is_a() and X:\n        return\n    import eng.platforms.b\nf()\n",
        "from eng.platforms import current\ntry:\n    if current.is_a():\n        raise X\nexcept X:\n    import eng.platforms.b\n",
        "from eng.platforms import current, other as current\nif current.is_b():\n    import eng.platforms.b\n",
        "from eng.platforms import current\nif current.is_b():\n    __import__('eng.platforms.b')\n",
    ],
)
def test_what_else_leads_to_it_keeps_it(code: str) -> None:
    assert level(world(on("a"), {"eng/code.py": code}), "platforms/b") in ("eager", "deferred")


HEAD = "from eng.platforms import current\n"


@pytest.mark.parametrize(
    "code",
    [
        HEAD + "if current.is_b():\n    import eng.extra\n",
        HEAD + "if not current.is_a():\n    import eng.extra\n",
        HEAD + "if current.is_a():\n    pass\nelse:\n    import eng.extra\n",
        HEAD + "if X:\n    pass\nelif current.is_b():\n    import eng.extra\n",
        HEAD + "if current.is_b() and X:\n    import eng.extra\n",
        HEAD + "if not (current.is_a() or X):\n    import eng.extra\n",
        HEAD + "def f():\n    if not current.is_b():\n        return 1\n    import eng.extra\nf()\n",
        HEAD + "for x in X:\n    if current.is_a():\n        continue\n    import eng.extra\n",
        HEAD + "if current.is_b():\n    def f():\n        import eng.extra\n    f()\n",
        "from .platforms import current as here\nif here.is_b():\n    import eng.extra\n",
        "def f():\n    from eng.platforms import current\n    if current.is_b():\n        from eng import (\n  extra,\n  )\nf()\n",
    ],
)
def test_a_branch_that_the_assumption_decides_is_cut(code: str) -> None:
    files = {"eng/code.py": code, "eng/extra.py": "import eng.behind\n", "eng/behind.py": ""}
    assert level(world(Assumed(), files), "behind") in ("eager", "deferred")
    assert level(world(on("b"), files), "behind") in ("eager", "deferred")
    assert level(world(on("a"), files), "behind") == "unreached"


def test_facts_of_another_text_cut_nothing() -> None:
    """The .pyc that runs can be of another source than the one that lies there."""
    source = HEAD + "if current.is_b():\n    import eng.extra\n"
    made = world(on("a"), {"eng/code.py": source, "eng/extra.py": ""})
    assert level(made, "extra") == "unreached"
    tree = ast.parse(source)
    assert 3 in dead_lines(tree, "current", {"is_b": False}, lambda node: node.module == "eng.platforms")

    class Other(Facts):
        def text(self, path: bytes) -> bytes | None:
            found = super().text(path)
            return found.replace(b"import eng.extra", b"pass") if found == source.encode() else found

    made.facts.__class__ = Other
    image, profile, entry = made._question
    found = trace(made.tree, made.attribution, made.facts, image, profile, entry, "a")
    assert found.roles["main"].evidence(f"{S}/eng/extra.py".encode()).level in ("eager", "deferred")


# Programs that are run --------------------------------------------------------------------------------------------------

_TESTS = st.recursive(
    st.sampled_from(["c.is_a()", "c.is_b()", "c.is_any()", "X", "True"]),
    lambda inner: st.one_of(
        inner.map(lambda each: f"not ({each})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda each: f"({each[0]} {each[1]} {each[2]})"),
    ),
    max_leaves=4,
)


def _indented(body: list[str]) -> list[str]:
    return [f"    {line}" for line in body]


_BODIES: st.SearchStrategy[list[str]] = st.recursive(
    st.sampled_from(
        [["x = 1"], ["return 1"], ["for y in (1, 2):", "    x = y"], ["raise ValueError"], ["x = (1,", "  2)"]]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda each: each[0] + each[1]),
        st.tuples(_TESTS, inner).map(lambda each: [f"if {each[0]}:", *_indented(each[1])]),
        st.tuples(_TESTS, inner, inner).map(
            lambda each: [f"if {each[0]}:", *_indented(each[1]), "else:", *_indented(each[2])]
        ),
        inner.map(lambda each: ["for z in (1, 2):", *_indented(each), "    if c.is_a(): continue", "    x = z"]),
        inner.map(lambda each: ["try:", *_indented(each), "except ValueError:", "    x = 3", "finally:", "    x = 4"]),
        inner.map(lambda each: ["with w():", *_indented(each)]),
    ),
    max_leaves=8,
)


class _Platform:
    def is_a(self) -> bool:
        return True

    def is_b(self) -> bool:
        return False

    def is_any(self) -> bool:
        return True


class _With:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


@settings(max_examples=150, deadline=None)
@given(_BODIES, st.booleans())
def test_no_line_that_is_called_dead_ever_runs(body: list[str], x: bool) -> None:
    source = "\n".join(["def f():", "    from p import c", *_indented(body), "    x = 5"]) + "\n"
    dead = dead_lines(
        ast.parse(source), "c", {"is_a": True, "is_b": False, "is_any": True}, lambda node: node.module == "p"
    )
    code = compile(source.replace("    from p import c", "    c = P"), "f", "exec")
    namespace: dict[str, Any] = {"P": _Platform(), "X": x, "w": _With}
    exec(code, namespace)
    ran: set[int] = set()

    def watch(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename == "f" and event == "line":
            ran.add(frame.f_lineno)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        namespace["f"]()
    except ValueError:
        pass
    finally:
        sys.settrace(before)
    assert not dead & ran, source


# Models ---------------------------------------------------------------------------------------------------------------


def test_without_a_model_every_entry_of_the_table_counts() -> None:
    made = world(Assumed())
    assert {level(made, f"models/{name}") for name in ("llama", "qwen", "llava", "base", "helper")} == {"deferred"}


def test_a_model_leaves_the_others_out() -> None:
    made = world(model("LlamaFor"))
    assert {level(made, f"models/{name}") for name in ("llama", "base", "helper")} == {"deferred"}
    assert {level(made, f"models/{name}") for name in ("qwen", "llava")} == {"unreached"}
    assert not [text for text in made.trace.caveats if "assumption" in text]


@pytest.mark.parametrize(
    "files",
    [
        {"eng/code.py": "from eng.models import qwen\n"},
        {"eng/code.py": "import importlib\nimportlib.import_module('eng.models.qwen')\n"},
        {"eng/code.py": "import importlib\nimportlib.import_module('eng.models.' + X)\n"},
        {"eng/models/llama.py": "from . import qwen\n"},
        {"eng/models/llama.py": "import eng.registry\ndef f():\n    return eng.registry.load('QwenFor')\n"},
        {"eng/models/llama.py": "NAME = 'qwen'\n"},
        {"eng/registry.py": REGISTRY.replace("_TEXT_MODELS = {", "_TEXT_MODELS = dict(x=1)\n_MORE = {")},
        # a second table, or a later line, that gives the architecture another module
        {
            "eng/registry.py": REGISTRY.replace(
                "_ALL_MODELS = {", "_MORE_MODELS = {'LlamaFor': ('qwen', 'X')}\n_ALL_MODELS = {"
            )
        },
        {"eng/registry.py": REGISTRY.replace("def load", "_TEXT_MODELS['LlamaFor'] = ('qwen', 'X')\ndef load")},
        {
            "eng/registry.py": REGISTRY.replace(
                "def load", "_TEXT_MODELS.update(LlamaFor=_TEXT_MODELS['QwenFor'])\ndef load"
            )
        },
        {"eng/registry.py": REGISTRY.replace("def load", "_TEXT_MODELS |= {'LlamaFor': OTHER}\ndef load")},
        {"eng/registry.py": REGISTRY.replace("def load", "for n in X:\n    _TEXT_MODELS[n] = (n, n)\ndef load")},
        {
            "eng/registry.py": REGISTRY.replace(
                "def load", "if X:\n    _TEXT_MODELS = {'LlamaFor': ('qwen', 'X')}\ndef load"
            )
        },
        {"eng/registry.py": REGISTRY.replace("def load", "also = _TEXT_MODELS\nalso['LlamaFor'] = X\ndef load")},
        {"eng/registry.py": REGISTRY.replace("def load", "fill(_TEXT_MODELS)\ndef load")},
        {"eng/registry.py": REGISTRY.replace("{**_TEXT_MODELS}", "{**_TEXT_MODELS, **others()}")},
        {"eng/registry.py": REGISTRY.replace("{**_TEXT_MODELS}", "{**_TEXT_MODELS, X: ('qwen', 'X')}")},
        {"eng/registry.py": REGISTRY.replace("{**_TEXT_MODELS}", "{**_TEXT_MODELS, 'LlamaFor': other('qwen')}")},
        {"eng/registry.py": REGISTRY.replace("{**_TEXT_MODELS}", "{k: f(v) for k, v in _TEXT_MODELS.items()}")},
        # code of the configs puts another architecture in the place of the one that a config.json names
        {
            "eng/code.py": "import eng.configs.c\n",
            "eng/configs/__init__.py": "",
            "eng/configs/c.py": "X = ['QwenFor']\n",
        },
        # the base class of the model loads a model inside it
        {"eng/models/llama.py": "from eng.models.llava import Llava\n"},
        {"eng/models/llama.py": "from . import llava\n"},
        {
            "eng/models/llama.py": "from .shared import Base\n",
            "eng/models/shared.py": "from eng.core import load_inner\nclass Base:\n    def f(self):\n        load_inner()\n",
        },
        {"eng/registry.py": "import importlib\n_ALL_MODELS = make()\nimportlib.import_module(f'eng.models.{X}')\n"},
    ],
)
def test_what_else_leads_to_a_model_keeps_it(files: dict[str, bytes | str]) -> None:
    assert level(world(model("LlamaFor"), files), "models/qwen") in ("eager", "deferred")


def test_an_architecture_that_no_table_holds_leaves_nothing_out() -> None:
    made = world(model("LlamaFor", "StrangeFor"))
    assert level(made, "models/qwen") == "deferred"
    (text,) = [text for text in made.trace.caveats if "assumption" in text]
    assert text.endswith("nothing of eng.registry was left out: it does not hold StrangeFor")


def test_a_model_that_loads_others_needs_its_whole_config() -> None:
    made = world(model("LlavaFor"))
    assert level(made, "models/qwen") == "deferred"
    assert "load_inner" in next(text for text in made.trace.caveats if "assumption" in text)
    made = world(model("LlavaFor", "LlamaFor", whole=True))
    assert {level(made, f"models/{name}") for name in ("llava", "llama")} == {"deferred"}
    assert level(made, "models/qwen") == "unreached"


def test_a_second_model_on_the_command_line_leaves_nothing_out() -> None:
    for argv in (("--draft", "x"), ("--draft=x",), ("--draft.model", "x"), ("--draft_model=x",)):
        made = world(model("LlamaFor"), argv=("python3.12", "-m", "eng.core", *argv))
        assert level(made, "models/qwen") == "deferred"
        assert any("--draft" in text and "on the command line" in text for text in made.trace.caveats)


def test_a_second_model_in_the_env_leaves_nothing_out() -> None:
    made = World(
        site(FILES),
        argv=("python3.12", "-m", "eng.core"),
        env=("EXTRA=-v --draft x",),
        profile=applied(PROFILE, model("LlamaFor")),
    )
    assert level(made, "models/qwen") == "deferred"


def test_a_model_inside_a_config_that_is_not_named_leaves_nothing_out() -> None:
    made = world(Assumed((), ("LlavaFor",), False, ("text_config",)))
    assert level(made, "models/qwen") == "deferred"
    assert "no architectures in text_config" in next(text for text in made.trace.caveats if "assumption" in text)


@pytest.mark.parametrize(
    "script",
    [
        'ARGS="--draft x"\nexec python3.12 -m eng.core $ARGS\n',
        'ARGS=(-v)\n[ -n "$D" ] && ARGS+=(--draft "$D")\nexec python3.12 -m eng.core "${ARGS[@]}"\n',
        'if [ -n "$D" ]; then set -- "$@" --draft "$D"; fi\nexec python3.12 -m eng.core "$@"\n',
        "exec python3.12 -m eng.core ${D:+--draft $D}\n",
        'eval "python3.12 -m eng.core --draft $D"\npython3.12 -m eng.core\n',
    ],
)
def test_a_second_model_that_a_script_of_the_entry_can_name_leaves_nothing_out(script: str) -> None:
    files = {**site(FILES), "start.sh": "#!/bin/bash\n" + script}
    made = World({**files, "bin/bash": "\x7fELF"}, argv=("/start.sh",), profile=applied(PROFILE, model("LlamaFor")))
    assert level(made, "models/qwen") == "deferred"
