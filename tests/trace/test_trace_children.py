"""Programs that Python code starts: what runs in them belongs to the role, through shells and scripts too."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()
ELVES = {f"usr/bin/{name}": ElfFacts(62, 64) for name in ("bash", "sh", "env", "tool")}
FILES: dict[str, bytes | str] = {
    **dict.fromkeys(ELVES, "ELF"),
    **site({"jobs/__init__.py": "", "jobs/one.py": "import dep\n", "jobs/two.py": "", "dep.py": ""}),
    "opt/jobs/run.sh": "#!/bin/bash\nexec python3.12 -m jobs.one\n",
    "opt/jobs/run": "#!/bin/bash\npython3.12 /opt/jobs/script.py\n",
    "opt/jobs/more.txt": ". /opt/jobs/inner.sh\n",
    "opt/jobs/inner.sh": "python3.12 -m jobs.one\n",
    "opt/jobs/script.py": "import jobs.one\n",
}


def world(code: str, files: dict[str, bytes | str] | None = None, env: tuple[str, ...] = ()) -> World:
    """An application with this code, jobs that nothing imports, and a shell."""
    everything = {**FILES, **site({"app.py": code}), **(files or {})}
    modes = {path: content for path, content in everything.items() if path != "opt/jobs/run"}
    return World(
        {**modes, "opt/jobs/bin/run": FILES["opt/jobs/run"]},
        env=env,
        elves=ELVES,
        links={"bin": "usr/bin"},
        owned={"jobs": [f"{S}/jobs/".encode()], "dep": [f"{S}/dep.py".encode()]},
    )


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['/opt/jobs/run.sh'])\n",
        "import subprocess\nsubprocess.run(['/opt/jobs/bin/run'])\n",
        "import subprocess\nsubprocess.run(['bash', '/opt/jobs/run.sh'])\n",
        "import subprocess\nsubprocess.run(['bash', '/opt/jobs/more.txt'])\n",
        "import subprocess\nsubprocess.run(['bash', '-c', 'exec python3.12 -m jobs.one'])\n",
        "import subprocess\nsubprocess.run(['env', 'A=1', 'bash', '/opt/jobs/run.sh'])\n",
        "import subprocess\nsubprocess.run('python3.12 /opt/jobs/script.py', shell=True)\n",
        "import subprocess\nsubprocess.run('python3.12 -m jobs.one --x', shell=True)\n",
        "import subprocess\nsubprocess.check_output('set -e; python3.12 -c \"import jobs.one\"', shell=True)\n",
        "import os\nos.system('cd /opt/jobs && ./run.sh')\n",
        "import os\nos.system('bash /opt/jobs/run.sh > /dev/null')\n",
        "import os\nos.popen('bash %s/run.sh' % '/opt/jobs')\n",
        "import os\nos.execlp('bash', 'bash', '/opt/jobs/run.sh')\n",
        "import os\nos.execv('/usr/bin/bash', ['bash', '/opt/jobs/run.sh'])\n",
    ],
)
def test_what_a_started_program_runs_is_deferred(code: str) -> None:
    found = world(code)
    assert found.level(f"{S}/jobs/one.py") == "deferred"
    assert found.level(f"{S}/dep.py") == "deferred"
    assert found.level(f"{S}/jobs/two.py") == "unreached"


def test_what_a_started_script_sources_is_deferred() -> None:
    assert world("import os\nos.system('bash /opt/jobs/more.txt')\n").level("opt/jobs/inner.sh") == "deferred"


@pytest.mark.parametrize(
    "call",
    [
        "subprocess.run([sys.executable, '-m', name])",
        "subprocess.run([sys.executable, '-m', 'jobs.' + name])",
        "subprocess.run(['python3.12', '-u', '-m', name])",
        "os.system('python3.12 -m %s' % name)",
        "os.system(f'python3.12 -u -m jobs.{name}')",
    ],
)
@pytest.mark.parametrize("where", ["env", "data"])
def test_a_module_that_does_not_fold_is_as_one_that_is_imported(call: str, where: str) -> None:
    says = "os.environ['JOB']" if where == "env" else "open('/etc/jobs/which.txt').read()"
    code = f"import os, subprocess, sys\ndef go(name):\n    {call}\ngo({says})\n"
    word = "one" if "jobs." in call else "jobs.one"
    files: dict[str, bytes | str] = {"etc/jobs/which.txt": f"{word}\n"} if where == "data" else {}
    found = world(code, files, (f"JOB={word}",) if where == "env" else ())
    assert found.level(f"{S}/jobs/one.py") == "deferred"


@pytest.mark.parametrize(
    "text",
    [
        "command=python3.12 -u -m jobs.one --x\n",
        '{"command": ["python3", "-m", "jobs.one"]}',
        "command:\n  - python\n  - -m\n  - jobs.one\n",
        "$PYTHON -m jobs.one\n",
        "exec /usr/bin/python3.12 /opt/jobs/script.py\n",
        '{"script": "/opt/jobs/script.py"}',
    ],
)
def test_a_command_line_that_stands_in_data(text: str) -> None:
    """Code that reads the file starts it, whichever way."""
    code = "import subprocess\nsubprocess.run(open('/etc/jobs/job.conf').read().split())\n"
    found = world(code, {"etc/jobs/job.conf": text})
    assert found.level(f"{S}/jobs/one.py") == "deferred"
    assert found.level(f"{S}/dep.py") == "deferred"
    assert found.level(f"{S}/jobs/two.py") == "unreached"
    assert world("import subprocess\n", {"etc/jobs/job.conf": text}).level(f"{S}/jobs/one.py") == "unreached"


@pytest.mark.parametrize("text", ["mount -m jobs.one\n", "python is not -model jobs.one\n", "python3\n\n-m jobs.one\n"])
def test_what_only_looks_like_a_command_line(text: str) -> None:
    code = "import subprocess\nsubprocess.run(open('/etc/jobs/job.conf').read().split())\n"
    assert world(code, {"etc/jobs/job.conf": text}).level(f"{S}/jobs/one.py") != "deferred"


def test_a_program_of_the_working_directory() -> None:
    files = {**FILES, **site({"app.py": ""}), "srv/bin/start": "#!/usr/bin/bash\nexec python3.12 -m jobs.one\n"}
    found = World(files, argv=("./bin/start",), elves=ELVES, links={"bin": "usr/bin"})
    assert found.level(f"{S}/jobs/one.py") == "eager"


@pytest.mark.parametrize(
    "code",
    [
        "import functools, importlib\nload = functools.partial(importlib.import_module, package='jobs')\nload('.one')\n",
        "import functools, importlib\nload = functools.partial(importlib.import_module, '.one')\nload('jobs')\n",
        "import importlib\nimportlib.import_module(**{'name': '.one', 'package': 'jobs'})\n",
        "import importlib\nARGS = ('.one', 'jobs')\nimportlib.import_module(*ARGS)\n",
    ],
)
def test_a_relative_name_in_a_package_that_the_same_module_names(code: str) -> None:
    found = world(code)
    assert found.level(f"{S}/jobs/one.py") == "deferred"
    assert found.level(f"{S}/jobs/two.py") == "unreached"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['PYTHONPATH'] = os.path.dirname(os.path.abspath(__file__))\n",
        "import os\nfrom os.path import dirname\ndef run():\n    os.environ['PYTHONPATH'] = dirname(__file__)\nrun()\n",
        "import os\nos.environ.update(PYTHONPATH=os.path.dirname(__file__))\nos.environ['PYTHONPATH']\n",
        "import os\nos.environ['PYTHONPATH'] = '/opt/auto'\n",
        "import subprocess\nsubprocess.run('PYTHONPATH=/opt/auto python3.12 -m jobs.two', shell=True)\n",
    ],
)
@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize/__init__.py"])
def test_what_site_imports_from_a_pythonpath_that_code_sets_is_reached(code: str, name: str) -> None:
    """As ``opentelemetry-instrument`` goes about it: no code imports the module by name."""
    found = world(
        "import auto\n",
        {**site({"auto/__init__.py": code}), f"{S}/auto/{name}": "import dep\n", f"opt/auto/{name}": ""},
    )
    own = f"{S}/auto/{name}" if "__file__" in code else f"opt/auto/{name}"
    assert found.level(own) in ("eager", "deferred")
    if own.startswith(S):
        assert found.level(f"{S}/dep.py") in ("eager", "deferred")
    plain = world("import auto\n", {**site({"auto/__init__.py": ""}), f"{S}/auto/{name}": "", f"opt/auto/{name}": ""})
    assert plain.level(own) == "unreached"
