"""Logins that docker keeps: ``~/.docker/config.json`` (DOCKER_CONFIG), credential helpers and stores; and those of
podman, whose ``auth.json`` has the same form.

The one door to docker's own code for that (``docker.auth``).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from imgdiff.errors import ServiceError
from imgdiff.sources._text import shown


class Login(msgspec.Struct, frozen=True):
    """A user and a password, or a token that stands for both (it is given to the token service only)."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:  # no secret gets into a traceback
        return "Login(...)"


def login_of(domain: str) -> Login | None:
    """Return the login for a registry (``docker.io``, ``localhost:5000``), None where there is none: docker's, else
    podman's.

    Starts the credential helper that the configuration names. Raises ServiceError where a configuration can't be
    read or its helper fails, in words without secrets.
    """
    for path, program in _configurations():
        found = _login_in(path, program, domain)
        if found is not None:
            return found
    return None


def _configurations() -> Iterator[tuple[Path, str]]:
    """Yield the files that can hold logins, with the program that writes them (containers-auth.json(5))."""
    from docker.utils.config import find_config_file

    found_at = find_config_file()
    if found_at is not None:
        yield Path(str(found_at)), "docker"
    named = os.environ.get("REGISTRY_AUTH_FILE")
    if named:
        yield Path(named), "podman"
        return
    running, own = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("XDG_CONFIG_HOME")
    places = [Path(running)] if running else [Path(f"/run/containers/{os.getuid()}")]
    for place in (*places, Path(own) if own else Path.home() / ".config"):
        path = place / ("auth.json" if place.parent == Path("/run/containers") else "containers/auth.json")
        if path.exists():
            yield path, "podman"


def _login_in(path: Path, program: str, domain: str) -> Login | None:
    from docker import auth
    from docker.errors import DockerException

    where = shown(str(path))
    hint = f"mend the file, or log in again: {program} login"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ServiceError(f"{where} can't be read: {(error.strerror or 'no reason given').lower()}") from error
    except ValueError as error:  # docker's own code would go on as if there were no logins
        raise ServiceError(f"{where} is no valid JSON", hint) from error
    if not isinstance(data, dict):
        raise ServiceError(f"{where} is no JSON object", hint)
    if not any(data.get(key) for key in ("auths", "credsStore", "credHelpers")):
        return None
    helper = ""
    try:
        config = auth.load_config(config_dict=data)
        helper = config.get_credential_store(domain) or ""
        if helper and shutil.which(f"docker-credential-{helper}") is None:
            raise ServiceError(
                f"the credential helper docker-credential-{shown(helper)}, which {where} names, is not there",
                "install it, or take it out of the configuration",
            )
        found = auth.resolve_authconfig(config, domain)
    except (DockerException, ValueError, TypeError, AttributeError, KeyError) as error:  # it takes any shape as given
        if helper:
            raise ServiceError(
                f"the credential helper docker-credential-{shown(helper)} failed for {domain}",
                f"see whether it runs: echo {domain} | docker-credential-{shown(helper)} get",
            ) from error
        raise ServiceError(f"{where} holds logins that can't be read", hint) from error
    return None if not found else _login(found)


def _login(found: dict[str, Any]) -> Login | None:
    """Return what docker's code found: it writes keys in lower case from a file and in upper case from a helper."""
    token = found.get("IdentityToken") or ""
    user = found.get("Username") or found.get("username") or ""
    password = found.get("Password") or found.get("password") or ""
    if token:
        return Login(identity_token=token)
    return Login(user, password) if user or password else None
