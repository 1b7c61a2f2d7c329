"""Two image configs held against each other: what a container would start as, and which difference of it bears.

Values that could be secrets are redacted here, so that no report ever sees them. deepdiff's one door.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import msgspec

from imgdiff.model import Bears, ConfigChange, ConfigField, EnvRule, ImageConfig, Profile

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?i)(^|_)(secret|secrets|token|tokens|password|passwd|passphrase|pwd|credential|credentials|auth|apikey|cookie)(_|$)"
    r"|(^|_)(api|access|private|signing|encryption|secret|license|account)_?key(_|$)|(^|_)key(_id)?$|_pat$|^(pat|key)$"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
_SECRET_OPTION = re.compile(
    r"(?i)^(--?[a-z0-9-]*(api-?key|token|password|passwd|secret|credential)[a-z0-9-]*)(=(?P<value>.*))?$"
)
_WORD = re.compile(r"""(?:[^\s'"=]+=)?(?:'[^']*'|"[^"]*"|[^\s'"])+""")  # of a shell command held in one argument

# Parts of a config that never decide what a process computes (DESIGN: labels, ports, history, health check: nothing).
_HARMLESS_FIELDS: Mapping[str, tuple[ConfigField, str]] = {
    "Labels": ("labels", "labels are read by tools, not by the process"),
    "ExposedPorts": ("ports", "declared ports are documentation for the engine"),
    "Healthcheck": ("healthcheck", "the health check runs beside the process"),
    "StopSignal": ("stop_signal", "it decides only how the process is ended"),
    "Shell": ("shell", "it is used by later builds only"),
    "OnBuild": ("other", "it is used by later builds only"),
}
# In a config but no part of what runs, or handled on their own.
_IGNORED_FIELDS = frozenset(
    {"Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Hostname", "Domainname", "Image", "ArgsEscaped"}
    | {"AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce", "Tty", "MacAddress"}
)


def compare_configs(
    a: ImageConfig | None,
    b: ImageConfig | None,
    profile: Profile,
    common: Iterable[EnvRule],
    *,
    both_root: bool = False,
) -> tuple[ConfigChange, ...]:
    """Return what differs in two image configs, each with what it bears, in the order of the fields then names.

    ``both_root``: both are proven to start as root, whichever way they spell it (``starting.is_root``).
    A side without a config (a root file system) compares as nothing: the caller says that it could not be compared.
    """
    if a is None or b is None:
        return ()
    rules = (*_build_label_rules(profile), *profile.env, *common)
    return (
        *_env(_variables(a.env), _variables(b.env), rules),
        *_argv("entrypoint", a.entrypoint, b.entrypoint),
        *_argv("cmd", a.cmd, b.cmd),
        *(_user(a, b, both_root) if _other_user(a, b) else ()),
        *_plain(
            "working_dir",
            _directory(a.working_dir),
            _directory(b.working_dir),
            "relative names and `python -m` start there",
        ),
        *_fields(a.raw, b.raw),
    )


def env_rule(name: str, profile: Profile, common: Iterable[EnvRule]) -> EnvRule:
    """Return the first rule that speaks of this ENV name: the profile's build labels and rules, then the common list.
    A name that no rule knows is undecided."""
    for rule in (*_build_label_rules(profile), *profile.env, *common):
        if fnmatchcase(name, rule.name):
            return rule
    return EnvRule(name, "undecided", "no list knows this name, and any name can change what a program does")


def _build_label_rules(profile: Profile) -> Iterator[EnvRule]:
    for name in profile.build_labels:
        yield EnvRule(name, "none", f"a build label of {profile.name}")


def _variables(env: Iterable[str]) -> dict[str, str]:
    variables = {}
    for line in env:
        name, _, value = line.partition("=")
        variables[name] = value
    return variables


def _env(a: Mapping[str, str], b: Mapping[str, str], rules: Iterable[EnvRule]) -> Iterator[ConfigChange]:
    rules = tuple(rules)
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) == b.get(name):
            continue
        rule = next((rule for rule in rules if fnmatchcase(name, rule.name)), None)
        bears: Bears
        if rule is None:
            bears, reason = "undecided", "no list knows this name, and any name can change what a program does"
        elif rule.bears == "path":
            bears, reason = "undecided", f"{rule.reason}; what it resolves is listed under resolution if it differs"
        else:
            bears, reason = rule.bears, rule.reason
        shown_a, hidden_a = redact_variable(name, a.get(name))
        shown_b, hidden_b = redact_variable(name, b.get(name))
        yield ConfigChange("env", name, shown_a, shown_b, bears, reason, hidden_a or hidden_b)


def _argv(field: ConfigField, a: tuple[str, ...], b: tuple[str, ...]) -> Iterator[ConfigChange]:
    if a == b:
        return
    shown_a, shown_b = redact_argv(a), redact_argv(b)
    reason = "the command line that starts the process differs"
    yield ConfigChange(
        field,
        None,
        msgspec.json.encode(shown_a).decode() if a else None,
        msgspec.json.encode(shown_b).decode() if b else None,
        "stands",
        reason,
        shown_a != list(a) or shown_b != list(b),
    )


def _other_user(a: ImageConfig, b: ImageConfig) -> bool:
    """An engine starts root where no user is named (OCI image-spec, config.md, ``User``)."""
    return (a.user or "0") != (b.user or "0")


def _user(a: ImageConfig, b: ImageConfig, both_root: bool) -> Iterator[ConfigChange]:
    if both_root:
        reason = (
            "the same user: /etc/passwd and /etc/group of both images say that root is user 0, and in group 0 alone"
        )
        yield ConfigChange("user", None, a.user or None, b.user or None, "none", reason)
    else:
        yield from _plain("user", a.user, b.user, "another user may read other files")


def _directory(path: str) -> str:
    """Return a working directory as getcwd(3) gives it, whichever way it is spelled; ``..`` can lead through a link."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _plain(field: ConfigField, a: str, b: str, reason: str) -> Iterator[ConfigChange]:
    if a != b:
        yield ConfigChange(field, None, a or None, b or None, "undecided", reason)


def _fields(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ConfigChange]:
    config_a, config_b = (_rest(raw) for raw in (a, b))
    for key in sorted(config_a.keys() | config_b.keys()):
        left, right = config_a.get(key), config_b.get(key)
        if key == "Labels" and all(isinstance(each, dict | None) for each in (left, right)):
            yield from _labels(left or {}, right or {})
        elif not _differ(left, right):
            continue
        elif key in _HARMLESS_FIELDS:
            field, reason = _HARMLESS_FIELDS[key]
            yield ConfigChange(field, None, _text(left), _text(right), "none", reason)
        elif key == "Volumes":
            reason = "a volume hides what the image has at its path"
            yield ConfigChange("volumes", None, _text(left), _text(right), "undecided", reason)
        else:
            reason = "no list knows this field of the config"
            yield ConfigChange("other", key, _text(left), _text(right), "undecided", reason)


def _differ(a: object, b: object) -> bool:
    """Tell whether two values of a config differ. What is written alike is the same without deepdiff's help."""
    if msgspec.json.encode(a) == msgspec.json.encode(b):
        return False
    from deepdiff import DeepDiff  # here: a quarter of the time that imgdiff needs to start

    return bool(DeepDiff(a, b))


def _rest(raw: Mapping[str, Any]) -> dict[str, Any]:
    config = raw.get("config")
    if not isinstance(config, dict):
        return {}
    return {
        key: value for key, value in config.items() if key not in _IGNORED_FIELDS and value not in (None, {}, [], "")
    }


def _labels(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ConfigChange]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            shown_a, hidden_a = redact_variable(name, _text(a.get(name)))
            shown_b, hidden_b = redact_variable(name, _text(b.get(name)))
            yield ConfigChange(
                "labels", name, shown_a, shown_b, "none", _HARMLESS_FIELDS["Labels"][1], hidden_a or hidden_b
            )


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return redact_text(msgspec.json.encode(value, order="sorted").decode())


# --------------------------------------------------------------------------------------------------------------------
# Redaction
# --------------------------------------------------------------------------------------------------------------------


def redact_variable(name: str, value: str | None) -> tuple[str | None, bool]:
    """Return the value as it may be shown, and whether something was hidden: all of it where the name looks like a
    secret's, passwords in URLs anywhere."""
    if value is None:
        return None, False
    if value and _SECRET_NAME.search(name):
        return REDACTED, True
    shown = redact_text(value)
    return shown, shown != value


def redact_text(value: str) -> str:
    """Return the text with the user part of every URL that has one replaced."""

    def hide(match: re.Match[str]) -> str:
        url = match.group()
        try:
            credentials = "@" in urlsplit(url).netloc
        except ValueError:
            credentials = "@" in url
        if not credentials:
            return url
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        return f"{scheme}://{REDACTED}@{authority.rpartition('@')[2]}{slash}{path}"

    return _URL.sub(hide, value)


def redact_argv(argv: Iterable[str]) -> list[str]:
    """Return a command line as it may be shown: the values of options and NAME=value words that look like secrets
    are replaced, and passwords in URLs."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option = _SECRET_OPTION.match(word)
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("-"):
            shown.append(REDACTED)
            hide_next = False
        elif option is not None:
            hide_next = option.group("value") is None
            shown.append(word if hide_next else f"{option.group(1)}={REDACTED}")
        elif equals and value and " " not in name and _SECRET_NAME.search(name):
            shown.append(f"{name}={REDACTED}")
        else:
            hide_next = False
            shown.append(_redact_command(word) if " " in word.strip() else redact_text(word))
    return shown


def _redact_command(command: str) -> str:
    """Return a shell command (``bash -c COMMAND``) with its words redacted as a command line's are."""
    words = list(_WORD.finditer(command))
    if len(words) < 2:  # one word in quotes: a command in a command
        quote, inner = command[:1], command[1:-1]
        nested = len(command) > 2 and quote in "'\"" and command.endswith(quote)
        return f"{quote}{_redact_command(inner)}{quote}" if nested else redact_text(command)
    pieces, end = [], 0
    for word, shown in zip(words, redact_argv(word.group() for word in words), strict=True):
        pieces += [command[end : word.start()], shown]
        end = word.end()
    return redact_text("".join((*pieces, command[end:])))


def redact_config(config: ImageConfig) -> ImageConfig:
    """Return a config without what could be a secret in it, and without what no comparison looks at (the history, whose
    commands can hold build arguments)."""
    inner = config.raw.get("config")
    names = ("architecture", "os", "variant", "created", "rootfs")
    raw: dict[str, Any] = {name: config.raw[name] for name in names if name in config.raw}
    if isinstance(inner, dict):
        raw["config"] = {key: _redacted(key, value) for key, value in inner.items()}
    return msgspec.structs.replace(
        config,
        env=tuple(map(_redact_line, config.env)),
        entrypoint=tuple(redact_argv(config.entrypoint)),
        cmd=tuple(redact_argv(config.cmd)),
        labels={name: redact_variable(name, value)[0] or "" for name, value in config.labels.items()},
        raw=raw,
    )


def _redact_line(line: str) -> str:
    name, equals, value = line.partition("=")
    return f"{name}{equals}{redact_variable(name, value)[0]}"


def _redacted(key: str, value: Any) -> Any:
    """Return a value of a config without secrets; ``key`` is its name."""
    if isinstance(value, str):
        return redact_variable(key, value)[0]
    if isinstance(value, dict):
        return {redact_text(name): _redacted(name, each) for name, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(map(_redact_line, value)) if key == "Env" else redact_argv(value)
    return [_redacted(key, each) for each in value] if isinstance(value, list) else value
