"""The command line over registries: the story's report is the one from disk, and trouble is one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.services.faults import Fault, Proxy
from tests.services.registries import push

STORY = Path(__file__).parents[3] / "fixtures" / "story"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "imgdiff", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def story(plain: str) -> str:
    """Push the story's images and give their name without a tag."""
    for tag in ("a", "b"):
        push(f"oci:{STORY / tag}", f"{plain}/story:{tag}")
    return "story"


def test_the_story_from_a_registry_is_the_story(proxy: Proxy, story: str, tmp_path: Path) -> None:
    names = [f"registry:{proxy.address}/{story}:{tag}" for tag in ("a", "b")]
    cache = ("--cache-dir", str(tmp_path / "cache"))
    done = run(*names, "--insecure", "--format", "json", *cache)
    disk = run(str(STORY / "a"), str(STORY / "b"), "--format", "json", "--no-cache")
    assert done.returncode == disk.returncode == 3, done.stderr
    found, expected = json.loads(done.stdout), json.loads(disk.stdout)
    different = {key for key in expected if found[key] != expected[key]}
    assert different == {"images", "imgdiff"}
    check_images(found["images"], expected["images"], proxy)
    assert done.stderr.splitlines()[-1].startswith("fetched ")
    assert disk.stderr.count("\n") == 1
    proxy.clear()
    warm = run(*names, "--insecure", "--format", "json", *cache)
    again = json.loads(warm.stdout)
    assert {key for key in again if again[key] != found[key]} == {"images"}  # by what was fetched alone
    assert not [each for each in proxy.requests("blobs") if each.sent > 2000]


def check_images(found: dict[str, Any], expected: dict[str, Any], proxy: Proxy) -> None:
    moved = 0
    for side in ("a", "b"):
        transfer = found[side].pop("transfer")
        assert expected[side].pop("transfer") is None
        moved += transfer["fetched"]
        named = ("reference", "source")
        assert [found[side].pop(key) for key in named] == [f"registry:{proxy.address}/story:{side}", "registry"]
        for key in named:
            expected[side].pop(key)
    assert found == expected
    assert moved == proxy.sent("/v2/story/")


def test_a_bare_name(plain: str, story: str) -> None:
    done = run(f"{plain}/{story}:a", f"{plain}/{story}:b", "--insecure", "--no-cache")
    assert done.returncode == 3, done.stderr
    assert "UNDECIDED" in done.stdout
    done = run(f"{plain}/{story}:a", f"{plain}/{story}:c", "--insecure", "--no-cache")
    assert done.stderr.startswith(f"imgdiff: '{plain}/{story}:c' names no image: ")
    assert done.stderr.endswith(f"in its registry: {plain}/{story} has no tag 'c'\n  hint: it has a and b\n")


def test_trouble_is_one_sentence(proxy: Proxy, story: str) -> None:
    a, b = (f"registry:{proxy.address}/{story}:{tag}" for tag in ("a", "c"))
    done = run(a, b, "--insecure", "--no-cache")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"imgdiff: {proxy.address}/story has no tag 'c'\n  hint: it has a and b\n"
    done = run(a, b, "--no-cache")
    assert done.stderr == f"imgdiff: {proxy.address} speaks no TLS\n  hint: --insecure allows plain HTTP\n"
    proxy.faults.append(Fault("/blobs/", status=404))
    done = run(a, f"{STORY / 'b'}", "--insecure", "--no-cache")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)


def test_an_interrupt_ends_a_download_that_stalls(proxy: Proxy, story: str) -> None:
    proxy.faults.append(Fault("/blobs/", times=1))  # the config
    proxy.faults.append(Fault("/blobs/", stall=1000))
    names = [f"registry:{proxy.address}/{story}:a", str(STORY / "b")]
    process = subprocess.Popen(command(*names, "--insecure", "--no-cache"), stderr=subprocess.PIPE, text=True)
    for _ in range(3000):
        if proxy.open_blobs:
            break
        time.sleep(0.01)
    time.sleep(0.2)  # for the answer's first bytes to arrive
    os.kill(process.pid, signal.SIGINT)
    try:
        _, stderr = process.communicate(timeout=40)  # the read itself would wait for 60 s
    finally:
        process.kill()
        proxy.over.set()
        proxy.rest()
        proxy.over.clear()
    assert (process.returncode, stderr.strip()) == (-signal.SIGINT, "interrupted")
