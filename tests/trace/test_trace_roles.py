"""Roles of an engine: roots, spawn and fork, plugins, roles inside roles, entries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from imgdiff.engines import load_profiles
from imgdiff.model import Distribution, ElfFacts, Environment, Profile
from tests.trace.world import PYTHON, SITE, STDLIB, World, site

S = SITE.decode()
VLLM = next(profile for profile in load_profiles() if profile.name == "vllm")

CONSOLE = "#!/usr/bin/python3.12\nimport sys\nfrom vllm.entrypoints.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
TREE: dict[str, bytes | str] = {
    **site(
        {
            "vllm/__init__.py": "",
            "vllm/entrypoints/__init__.py": "",
            "vllm/entrypoints/cli/__init__.py": "",
            "vllm/entrypoints/cli/main.py": "import vllm.logger\ndef main():\n    import vllm.entrypoints.cli.serve\n",
            "vllm/entrypoints/cli/serve.py": "import vllm.entrypoints.openai.api_server\n",
            "vllm/entrypoints/openai/__init__.py": "",
            "vllm/entrypoints/openai/api_server.py": "import vllm.middleware\nimport vllm.binds\nif __name__ == '__main__':\n    import vllm.only_main\n",
            "vllm/logger.py": "",
            "vllm/middleware.py": "registry = object()\nregistry.add('x')\n",
            "vllm/binds.py": "import vllm.logger\nX = 1\n",
            "vllm/only_main.py": "",
            "vllm/v1/__init__.py": "",
            "vllm/v1/engine/__init__.py": "",
            "vllm/v1/engine/core.py": "import vllm.v1.utils\n",
            "vllm/v1/engine/coordinator.py": "",
            "vllm/v1/utils.py": "def run_api_server_worker_proc():\n    from vllm.entrypoints.openai.api_server import serve\n",
            "vllm/v1/executor/__init__.py": "",
            "vllm/v1/executor/abstract.py": "",
            "vllm/v1/executor/multiproc_executor.py": "",
            "vllm/v1/worker/__init__.py": "",
            "vllm/v1/worker/gpu_worker.py": "import vllm.model\n",
            "vllm/model.py": "",
            "plug.py": "",
            "endpoint_plug.py": "",
        }
    ),
    "usr/bin/vllm": CONSOLE,
}
SPAWN = ("VLLM_WORKER_MULTIPROC_METHOD=spawn",)
FORK = ("VLLM_WORKER_MULTIPROC_METHOD=fork",)
MAIN_M = ("python3.12", "-m", "vllm.entrypoints.openai.api_server")


def world(
    argv: tuple[str, ...] = ("vllm", "serve", "m"),
    env: tuple[str, ...] = SPAWN,
    without: tuple[str, ...] = (),
    **more: object,
) -> World:
    files = {path: content for path, content in TREE.items() if not any(path.endswith(name) for name in without)}
    return World(files, argv=argv, env=env, profile=VLLM, **more)  # type: ignore[arg-type]  # forwarded


def level(image: World, name: str, role: str) -> str:
    return image.level(f"{S}/vllm/{name}.py", role)


def test_the_roots_of_each_role_are_eager() -> None:
    image = world()
    assert level(image, "v1/engine/core", "engine-core") == "eager"
    assert level(image, "v1/executor/multiproc_executor", "worker") == "eager"
    assert level(image, "entrypoints/openai/api_server", "api-server") == "eager"
    assert level(image, "v1/engine/coordinator", "dp-coordinator") == "eager"
    assert level(image, "v1/engine/coordinator", "engine-core") == "unreached"
    assert "vllm.v1.engine.core" in image.trace.roles["engine-core"].roots


def test_the_founding_story_is_dormant_with_its_one_chain() -> None:
    image = world()
    assert level(image, "middleware", "api-server") == "eager"
    assert level(image, "middleware", "engine-core") == "dormant"
    chain = image.chain(f"{S}/vllm/middleware.py", "engine-core")
    assert [hop[0] for hop in chain] == [
        "vllm.v1.engine.core",
        "vllm.v1.utils",
        "vllm.entrypoints.openai.api_server",
        "vllm.middleware",
    ]
    assert chain[1][1:3] == (2, "run_api_server_worker_proc")
    assert chain[-1][3] == "dormant"


def test_under_spawn_the_entry_runs_again_in_every_child() -> None:
    image = world(MAIN_M)
    for role in ("engine-core", "worker"):
        assert level(image, "middleware", role) == "eager"
        assert level(image, "only_main", role) != "eager"
    assert level(image, "only_main", "api-server") == "eager"


def test_a_console_script_brings_its_imports_into_every_child_and_no_more() -> None:
    image = world()
    assert level(image, "entrypoints/cli/main", "engine-core") == "eager"
    assert level(image, "entrypoints/openai/api_server", "engine-core") == "dormant"
    assert image.level("usr/bin/vllm", "engine-core") == "eager"


def test_under_fork_what_the_parent_ran_is_deferred_unless_it_only_binds_names() -> None:
    image = world(MAIN_M, FORK)
    assert level(image, "middleware", "engine-core") == "deferred"
    assert level(image, "binds", "engine-core") in ("dormant", "unreached", "deferred")
    image = world(MAIN_M, ())  # neither is fixed: both count
    assert level(image, "middleware", "engine-core") == "eager"


@pytest.mark.parametrize(
    ("code", "argv"),
    [
        ("python3.12 /opt/patch.py\nexec vllm serve m", ("/opt/start.sh",)),
        ("python3.12 /opt/patch.py && vllm serve m &\nwait", ("/opt/start.sh",)),
        ("cd /opt\npython3.12 -m patch\nexec vllm serve m", ("/opt/start.sh",)),
        ("python3.12 -c 'import sys; sys.path.append(\"/opt\"); import helper'\nvllm serve m", ("/opt/start.sh",)),
        ("", ("/opt/bin/otel", "vllm", "serve", "m")),
        ("", ("/opt/bin/otel", "--exporter", "none", "/usr/bin/vllm", "serve", "m")),
    ],
)
def test_another_python_on_the_way_to_the_engine_can_change_what_it_loads(code: str, argv: tuple[str, ...]) -> None:
    """... by patching a file, or by what it sets for the engine: a killed verdict left it out."""
    more = {
        "usr/bin/bash": "ELF",
        "opt/start.sh": f"#!/usr/bin/bash\n{code}\n",
        "opt/patch.py": "import helper\n",
        "opt/helper.py": "import deeper\n",
        "opt/deeper.py": "",
        "opt/other.py": "",
        "opt/bin/otel": "#!/usr/bin/python3.12\nimport sys\nsys.path.append('/opt')\nimport helper\n",
    }
    image = World({**TREE, **more}, argv=argv, env=SPAWN, profile=VLLM, elves={"usr/bin/bash": ElfFacts(62, 64)})
    for role in ("engine-core", "worker", "api-server"):
        assert {image.level(f"opt/{name}.py", role) for name in ("helper", "deeper")} == {"deferred"}
        assert image.level("opt/other.py", role) in ("unreached", "unknown")
    assert level(image, "v1/engine/core", "engine-core") == "eager"
    assert level(image, "middleware", "engine-core") == "dormant"


@pytest.mark.parametrize("start", ["/opt/tool/bin/python /opt/patch.py", "/opt/tool/bin/python -m patch"])
def test_another_python_on_the_way_begins_as_any_does(start: str) -> None:
    """... with what a ``.pth`` line of its own environment imports, and what ``-m`` does."""
    packages = "opt/tool/lib/python3.12/site-packages"
    more = {
        "usr/bin/bash": "ELF",
        "opt/start.sh": f"#!/usr/bin/bash\ncd /opt\n{start}\nexec vllm serve m\n",
        "opt/patch.py": "",
        "opt/tool/pyvenv.cfg": "home = /usr/bin\n",
        f"{packages}/hook.pth": "import hook\n",
        f"{packages}/hook.py": "import deeper\n",
        f"{packages}/deeper.py": "",
        f"{packages}/never.py": "",
        "usr/lib/python3.12/runpy.py": "import pkgutil\n",
        "usr/lib/python3.12/pkgutil.py": "",
    }
    environments = [
        Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,)),
        Environment(b"opt/tool", b"usr", PYTHON, "3.12", STDLIB, (packages.encode(),), False),
    ]
    image = World(
        {**TREE, **more},
        argv=("/opt/start.sh",),
        env=SPAWN,
        profile=VLLM,
        elves={"usr/bin/bash": ElfFacts(62, 64)},
        links={"opt/tool/bin/python": "/usr/bin/python3.12"},
        environments=environments,
    )
    for role in ("engine-core", "worker", "api-server"):
        levels = [image.level(f"{packages}/{name}.py", role) for name in ("hook", "deeper", "never")]
        assert levels == ["deferred", "deferred", "unreached"]
        if "-m" in start:
            assert image.level("usr/lib/python3.12/runpy.py", role) in ("deferred", "eager")


@pytest.mark.parametrize(
    ("arguments", "inside"),
    [
        ((), True),
        (("--distributed-executor-backend", "mp"), False),
        (("--distributed-executor-backend=ray",), False),
        (("--distributed-executor-backend", "uni"), True),
        (("-tp", "2"), False),
        (("--tensor-parallel-size", "1"), True),
        (("--tensor-parallel-size=4",), False),
        (("-pp", "2"), False),
    ],
)
def test_the_worker_lives_in_the_engine_core_unless_the_argv_says_otherwise(
    arguments: tuple[str, ...], inside: bool
) -> None:
    image = world(("vllm", "serve", "m", *arguments))
    assert (level(image, "model", "engine-core") == "eager") is inside
    assert level(image, "model", "worker") == "eager"


def test_a_group_without_a_member_is_a_blindspot_for_that_role() -> None:
    image = world(("vllm", "serve", "m", "-tp", "2"), without=("gpu_worker.py",))
    spots = [spot for spot in image.trace.blindspots if "worker class" in spot.reason]
    assert spots
    assert {role for spot in spots for role in spot.roles} == {"worker"}
    assert not world().trace.blindspots


def test_plugin_groups_are_loaded_in_the_roles_that_load_them() -> None:
    points = (("vllm.general_plugins", "p", "plug:x"), ("vllm.endpoint_plugins", "e", "endpoint_plug:x"))
    image = world(distributions=[Distribution("plug", "1", SITE, b"", 0, ("plug",), points)])
    assert image.level(f"{S}/plug.py", "worker") == "deferred"
    assert image.level(f"{S}/endpoint_plug.py", "api-server") == "deferred"
    assert image.level(f"{S}/endpoint_plug.py", "worker") == "unreached"


def test_an_image_that_names_no_entry_gets_all_of_them() -> None:
    image = world(("bash",), elves={"usr/bin/bash": ElfFacts(62, 64)})
    assert level(image, "middleware", "engine-core") == "eager"  # as under -m
    assert any("every entry" in caveat for caveat in image.trace.caveats)
    image = world((), config=False)
    assert level(image, "v1/engine/core", "engine-core") == "eager"


def test_the_registry_child_loads_the_working_directorys_copy() -> None:
    files = {
        f"{S}/vllm/v1/engine/core.py": "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'vllm.registry'])\n",
        f"{S}/vllm/registry.py": "import vllm.model\n",
        "work/vllm/__init__.py": "",
        "work/vllm/registry.py": "import vllm.model\n",
        "work/vllm/model.py": "",
        "work/vllm/quiet_zz.py": "",
    }
    image = World({**TREE, **files}, argv=("vllm", "serve", "m", "-tp", "2"), env=SPAWN, profile=VLLM, cwd="/work")
    assert image.level("work/vllm/registry.py", "engine-core") == "deferred"
    assert image.level("work/vllm/model.py", "engine-core") == "deferred"
    assert level(image, "v1/engine/core", "engine-core") == "eager"
    safe = World(
        {**TREE, **files}, argv=("vllm", "serve", "m"), env=(*SPAWN, "PYTHONSAFEPATH=1"), profile=VLLM, cwd="/work"
    )
    assert safe.level("work/vllm/registry.py", "engine-core") != "deferred"


SAME = """
import msgspec
from tests.trace.test_trace_roles import MAIN_M, world
image = world(MAIN_M, ())
for name, role in image.trace.roles.items():
    print(name, sorted(role.modules), sorted(role.libraries))
    for path in sorted(image.tree.entries):
        print(path, role.evidence(path))
print(image.trace.blindspots, image.trace.caveats, image.trace.integrity)
"""


def test_nothing_depends_on_the_order_of_sets() -> None:
    root = Path(__file__).parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SAME],
            cwd=root,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_facts_are_asked_for_in_waves() -> None:
    image = world()
    assert any(len(wave) > 3 for wave in image.facts.waves)


def test_sglang_roles() -> None:
    profile: Profile = next(each for each in load_profiles() if each.name == "sglang")
    files = site(
        {
            "sglang/__init__.py": "",
            "sglang/launch_server.py": "",
            "sglang/srt/__init__.py": "",
            "sglang/srt/entrypoints/__init__.py": "",
            "sglang/srt/entrypoints/http_server.py": "",
            "sglang/srt/managers/__init__.py": "",
            "sglang/srt/managers/scheduler.py": "",
            "sglang/srt/managers/tp_worker.py": "",
            "sglang/srt/managers/detokenizer_manager.py": "",
        }
    )
    image = World(files, argv=("python3.12", "-m", "sglang.launch_server"), profile=profile)
    assert image.level(f"{S}/sglang/srt/managers/scheduler.py", "scheduler") == "eager"
    assert image.level(f"{S}/sglang/srt/managers/detokenizer_manager.py", "scheduler") == "unreached"
    assert image.level(f"{S}/sglang/srt/managers/detokenizer_manager.py", "detokenizer") == "eager"
    assert [role.name for role in profile.roles if role.engine] == ["scheduler"]
    assert not image.trace.blindspots
