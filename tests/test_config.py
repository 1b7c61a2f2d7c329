"""Image configs: what bears, what is hidden."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgdiff import engines
from imgdiff.config import REDACTED, compare_configs, redact_argv, redact_text, redact_variable
from imgdiff.model import ConfigChange, EnvRule, ImageConfig, Profile

PROFILE = Profile(
    "vllm",
    "vllm",
    (),
    build_labels=("VLLM_BUILD_COMMIT",),
    env=(EnvRule("VLLM_*", "stands", "steers vLLM"),),
)
COMMON = (
    EnvRule("LD_PRELOAD", "stands", "loads a library into every process"),
    EnvRule("PATH", "path", "decides which program runs"),
    EnvRule("PIP_*", "none", "read by pip alone"),
)


def config(*env: str, raw: dict[str, Any] | None = None, **fields: Any) -> ImageConfig:
    return ImageConfig(env=env, raw={"config": raw or {}}, **fields)


def compare(a: ImageConfig, b: ImageConfig) -> dict[tuple[str, str | None], ConfigChange]:
    return {(change.field, change.name): change for change in compare_configs(a, b, PROFILE, COMMON)}


@pytest.mark.parametrize(
    ("name", "bears"),
    [
        ("VLLM_USE_V1", "stands"),
        ("VLLM_BUILD_COMMIT", "none"),  # a build label is asked first
        ("LD_PRELOAD", "stands"),
        ("PATH", "undecided"),
        ("PIP_INDEX", "none"),
        ("OMP_NUM_THREADS", "undecided"),  # no list knows it
    ],
)
def test_what_a_changed_variable_bears(name: str, bears: str) -> None:
    changes = compare(config(f"{name}=1"), config(f"{name}=2"))
    assert changes["env", name].bears == bears
    assert compare(config(f"{name}=1"), config())["env", name].b is None


def bears_by_the_list(name: str) -> list[str]:
    changes = compare_configs(config(f"{name}=1"), config(f"{name}=2"), PROFILE, engines.common().env)
    return [change.bears for change in changes]


@pytest.mark.parametrize("prefix", ["", "MODEL_"])
@pytest.mark.parametrize("word", ["EOS", "BOS", "PAD", "STOP", "IMAGE", "UNK", "MASK", "SEP", "CLS"])
def test_words_of_a_model_are_no_secrets(prefix: str, word: str) -> None:
    assert bears_by_the_list(f"{prefix}{word}_TOKEN") == ["undecided"]


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "SERVICE_AUTH_TOKEN"])
def test_a_token_that_says_who_asks_weighs_nothing(name: str) -> None:
    assert bears_by_the_list(name) == ["none"]


@pytest.mark.parametrize("name", ["UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_ENV_FILE", "PIP_INDEX_URL", "PIP_TARGET"])
def test_what_changes_what_uv_and_pip_start_or_install_is_open(name: str) -> None:
    assert bears_by_the_list(name) == ["undecided"]


@pytest.mark.parametrize("name", ["UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "PIP_NO_CACHE_DIR", "PIP_ROOT_USER_ACTION"])
def test_what_changes_how_fast_uv_and_pip_work_is_harmless(name: str) -> None:
    assert bears_by_the_list(name) == ["none"]


def test_the_order_of_variables_is_none_of_their_value() -> None:
    assert compare(config("A=1", "B=2"), config("B=2", "A=1")) == {}


def test_a_changed_command_line_stands() -> None:
    changes = compare(
        config(entrypoint=("vllm", "serve"), cmd=("--port", "1")), config(entrypoint=("bash",), cmd=("--port", "2"))
    )
    assert changes["entrypoint", None].bears == "stands"
    assert changes["cmd", None].bears == "stands"


@pytest.mark.parametrize(
    ("one", "other"),
    [("", "/"), ("/srv", "/srv/"), ("/srv", "//srv/./"), ("srv", "/srv")],
)
def test_the_same_directory_spelled_otherwise_is_no_difference(one: str, other: str) -> None:
    assert not compare(config(working_dir=one, user=""), config(working_dir=other, user="0"))
    assert compare(config(working_dir=one), config(working_dir=other + "/..", user="00"))


def test_user_and_working_directory_are_undecided_and_an_empty_one_is_the_root() -> None:
    changes = compare(config(user="0", working_dir=""), config(user="1000", working_dir="/"))
    assert {key: change.bears for key, change in changes.items()} == {("user", None): "undecided"}


def test_labels_ports_and_health_checks_weigh_nothing_and_volumes_are_undecided() -> None:
    a = config(raw={"Labels": {"v": "1"}, "ExposedPorts": {"80/tcp": {}}, "Healthcheck": {"Test": ["NONE"]}})
    b = config(raw={"Labels": {"v": "2"}, "Volumes": {"/data": {}}, "Novel": 1})
    assert {key: change.bears for key, change in compare(a, b).items()} == {
        ("labels", "v"): "none",
        ("ports", None): "none",
        ("healthcheck", None): "none",
        ("volumes", None): "undecided",
        ("other", "Novel"): "undecided",
    }


def test_a_root_file_system_has_no_config_to_compare() -> None:
    assert compare_configs(None, config("A=1"), PROFILE, COMMON) == ()


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "API_KEY", "OPENAI_API_KEY", "GH_PAT", "my_auth", "apikey"],
)
def test_a_secret_by_name_is_never_shown(name: str) -> None:
    change = compare(config(f"{name}=old-value"), config(f"{name}=new-value"))["env", name]
    assert (change.a, change.b, change.redacted) == (REDACTED, REDACTED, True)


@pytest.mark.parametrize("name", ["KEYBOARD", "TOKENIZERS_PARALLELISM", "VLLM_MONKEY", "AUTHOR", "PATH"])
def test_a_harmless_name_is_shown(name: str) -> None:
    assert redact_variable(name, "value") == ("value", False)


def test_passwords_in_urls_are_hidden_wherever_they_stand() -> None:
    shown = redact_text("use http://me:hunter2@proxy:3128/x and https://example.org/a@b")
    assert shown == f"use http://{REDACTED}@proxy:3128/x and https://example.org/a@b"


@given(st.text(alphabet="abc:/@.[]%", max_size=30))
def test_redaction_never_fails_and_is_stable(text: str) -> None:
    once = redact_text("http://" + text)
    assert redact_text(once) == once


def test_secrets_in_a_command_line_are_hidden() -> None:
    argv = ["vllm", "serve", "--api-key", "s3cret", "--hf-token=abc", "HF_TOKEN=def", "--port", "80", "http://u:p@h/"]
    shown = redact_argv(argv)
    assert shown == [
        *("vllm", "serve", "--api-key", REDACTED, f"--hf-token={REDACTED}", f"HF_TOKEN={REDACTED}"),
        *("--port", "80", f"http://{REDACTED}@h/"),
    ]


def test_a_command_in_one_word_is_redacted_as_a_command_line() -> None:
    command = "exec vllm serve --api-key sk-1 HF_TOKEN=hf-1 'it is' --token='a b' \"$@\""
    assert redact_argv(["bash", "-c", command, "--"]) == [
        *("bash", "-c"),
        f"exec vllm serve --api-key {REDACTED} HF_TOKEN={REDACTED} 'it is' --token={REDACTED} \"$@\"",
        "--",
    ]
    assert redact_argv(["sh -c 'run --api-key sk-1 \"x y\"'"]) == [f"sh -c 'run --api-key {REDACTED} \"x y\"'"]
    assert redact_argv(["a b", " ", "'", "x 'y"]) == ["a b", " ", "'", "x 'y"]


@given(st.text(alphabet="ab '\"=-\\/:@", max_size=40))
def test_redacting_any_command_ends(text: str) -> None:
    redact_argv([text])


def test_deepdiff_is_only_loaded_where_two_fields_are_written_differently() -> None:
    """It is a quarter of the time that imgdiff needs to start."""
    code = (
        "import sys; from imgdiff import cli, config; from imgdiff.model import ImageConfig\n"
        "print('deepdiff' in sys.modules); config._differ({'x': [1]}, {'x': [1]}); print('deepdiff' in sys.modules)\n"
        "print(config._differ({'x': 1}, {'x': True}), 'deepdiff' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "True", "True"]
