"""Options of ``docker run`` in the words of the SDK."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from imgdiff.errors import UsageError
from imgdiff.sources._text import shown

if TYPE_CHECKING:
    from docker import APIClient
    from docker.types import DeviceRequest, Mount, Ulimit


class ContainerOptions(msgspec.Struct, frozen=True):
    """What a container is given, each in the words of docker run's option of this name."""

    volume: tuple[str, ...] = ()
    mount: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()
    gpus: str | None = None
    device: tuple[str, ...] = ()
    ipc: str | None = None
    pid: str | None = None
    shm_size: str | None = None
    network: str | None = None
    publish: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    add_host: tuple[str, ...] = ()
    workdir: str | None = None
    user: str | None = None
    group_add: tuple[str, ...] = ()
    name: str | None = None
    hostname: str | None = None
    label: tuple[str, ...] = ()
    privileged: bool = False
    ulimit: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    memory: str | None = None
    cpus: float | None = None
    cpuset_cpus: str | None = None
    runtime: str | None = None
    init: bool = False
    read_only: bool = False


def create_arguments(
    sdk: APIClient, options: ContainerOptions, argv: Sequence[str] | None, env: Mapping[str, str], place: str
) -> dict[str, Any]:
    """Return the arguments of the SDK's ``create_container``. Raises UsageError for what can't be understood."""
    from docker.utils import parse_bytes
    from docker.utils.ports import build_port_bindings

    ports = _understood("--publish", options.publish, build_port_bindings, list(options.publish)) or {}
    binds = [_bind(each) for each in options.volume if ":" in each]
    host = {
        "binds": binds or None,
        "mounts": [_mount(each) for each in options.mount] or None,
        "tmpfs": dict(_pair(each, ":") for each in options.tmpfs) or None,
        "device_requests": _gpus(options.gpus) if options.gpus is not None else None,
        "devices": list(options.device) or None,
        "ipc_mode": options.ipc,
        "pid_mode": options.pid,
        "shm_size": _understood("--shm-size", options.shm_size, parse_bytes, options.shm_size),
        "network_mode": options.network,
        "port_bindings": ports or None,
        "dns": list(options.dns) or None,
        "extra_hosts": dict(_pair(each, ":") for each in options.add_host) or None,
        "group_add": list(options.group_add) or None,
        "privileged": options.privileged,
        "ulimits": [_ulimit(each) for each in options.ulimit] or None,
        "cap_add": list(options.cap_add) or None,
        "cap_drop": list(options.cap_drop) or None,
        "security_opt": [_security(each) for each in options.security_opt] or None,
        "mem_limit": _understood("--memory", options.memory, parse_bytes, options.memory),
        "nano_cpus": int(options.cpus * 1e9) if options.cpus else None,
        "cpuset_cpus": options.cpuset_cpus,
        "runtime": options.runtime,
        "init": options.init or None,
        "read_only": options.read_only or None,
    }
    created: dict[str, Any] = {
        "environment": [f"{name}={value}" for name, value in env.items()],
        "volumes": [place, *(each for each in options.volume if ":" not in each)],
        "ports": [tuple(_pair(str(port), "/")) if "/" in str(port) else int(port) for port in ports] or None,
        "working_dir": options.workdir,
        "user": options.user,
        "hostname": options.hostname,
        "labels": {"org.imgdiff": "recorded", **dict(_pair(each, "=") for each in options.label)},
        "host_config": _understood("docker run's options", "", sdk.create_host_config, **host),
    }
    if argv is not None:
        created["entrypoint"] = [argv[0]]
        created["command"] = list(argv[1:])
    return created


def _understood(option: str, value: object, function: Any, *arguments: Any, **more: Any) -> Any:
    """Call a function of the SDK on what was given; what it refuses is a wrong use."""
    from docker.errors import DockerException

    if arguments == (None,):
        return None
    try:
        return function(*arguments, **more)
    except (DockerException, ValueError, TypeError) as error:
        given = " ".join(value) if isinstance(value, tuple) else str(value)
        raise UsageError(
            f"{option} {shown(given)} is not understood: {shown(str(error))}".replace("  ", " ")
        ) from error


def _pair(text: str, separator: str) -> tuple[str, str]:
    first, _, second = text.partition(separator)
    return first, second


def _bind(text: str) -> str:
    """A path of this machine is absolute; any other word is the name of a volume."""
    source, colon, rest = text.partition(":")
    if source in (".", "..") or source.startswith(("./", "../")):
        source = str(Path(source).absolute())
    return f"{source}{colon}{rest}"


def _mount(text: str) -> Mount:
    from docker.types import Mount

    fields = dict(_pair(field, "=") for field in next(csv.reader([text])))
    source = fields.get("source", fields.get("src"))
    target = fields.get("target", fields.get("destination", fields.get("dst")))
    known = {"type", "source", "src", "target", "destination", "dst", "readonly", "ro"}
    if target is None or not known.issuperset(fields):
        odd = sorted(set(fields) - known)
        raise UsageError(
            f"--mount {shown(text)} is not understood" + (f": {shown(odd[0])}" if odd else ": it has no target"),
            "imgdiff record takes type, source, target and readonly of it",
        )
    kind = fields.get("type", "volume")
    if kind not in ("bind", "volume", "tmpfs"):
        raise UsageError(f"--mount {shown(text)} is not understood", "its type is bind, volume or tmpfs")
    if kind == "bind" and source is not None:
        source = str(Path(source).absolute())
    read_only = any(name in fields and fields[name].lower() in ("", "1", "true") for name in ("readonly", "ro"))
    return Mount(target, source or "", cast("Literal['bind', 'volume', 'tmpfs']", kind), read_only=read_only)


def _gpus(text: str) -> list[DeviceRequest]:
    """``all``, a number, or ``device=0,1`` and such, as docker's client takes it."""
    from docker.types import DeviceRequest

    fields = next(csv.reader([text.strip("'")]))
    if len(fields) == 1 and "=" not in fields[0]:
        fields = [f"count={fields[0]}"]
    given = dict(_pair(field, "=") for field in _rejoined(fields))
    count = given.pop("count", None)
    devices = given.pop("device", None)
    capabilities = [part for part in given.pop("capabilities", "").split(",") if part]
    driver = given.pop("driver", "")
    if given or (count is not None and count != "all" and not count.isdigit()):
        raise UsageError(f"--gpus {shown(text)} is not understood", "say all, a number, or device=0,1")
    number = -1 if count == "all" else int(count) if count is not None else 0
    wanted = capabilities if "gpu" in capabilities else ["gpu", *capabilities]
    named = devices.split(",") if devices is not None else None
    if named is None:
        return [DeviceRequest(driver=driver, count=number or -1, capabilities=[wanted])]
    return [DeviceRequest(driver=driver, device_ids=named, capabilities=[wanted])]


def _rejoined(fields: Sequence[str]) -> list[str]:
    """``device=0,1`` without quotes is one field all the same."""
    found: list[str] = []
    for field in fields:
        if "=" not in field and found:
            found[-1] += f",{field}"
        else:
            found.append(field)
    return found


def _ulimit(text: str) -> Ulimit:
    from docker.types import Ulimit

    name, _, limits = text.partition("=")
    soft, _, hard = limits.partition(":")
    try:
        return Ulimit(name=name, soft=int(soft), hard=int(hard or soft))
    except ValueError as error:
        raise UsageError(f"--ulimit {shown(text)} is not understood", "say NAME=SOFT[:HARD]") from error


def _security(text: str) -> str:
    """docker's client sends the profile itself where a file of one is named."""
    name, _, value = text.partition("=")
    if name != "seccomp" or value in ("unconfined", "builtin") or not value:
        return text
    try:
        return f"seccomp={Path(os.fsdecode(value)).read_text('utf-8')}"
    except (OSError, ValueError) as error:
        raise UsageError(f"--security-opt {shown(text)}: the file can't be read", "check its path") from error
