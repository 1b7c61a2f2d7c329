"""Leave to read: challenges (RFC 9110, 11.6.1), basic logins, and tokens (distribution spec, "Token Authentication";
"OAuth2 Token Authentication" where an identity token stands for the login)."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from imgdiff.errors import ServiceError
from imgdiff.sources._docker_auth import Login, login_of
from imgdiff.sources._names import ImageName
from imgdiff.sources.registry import _trouble as trouble
from imgdiff.sources.registry._http import Answer, Connection, Network

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|\Z)))?")
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SEPARATORS: Final = re.compile(r"[\s,]*")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+")
_CLIENT: Final = "imgdiff"


class Challenge(msgspec.Struct, frozen=True):
    """One way that a server offers; names in lower case."""

    scheme: str
    parameters: dict[str, str]


def parse_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a WWW-Authenticate header, as far as it can be read."""
    found: list[Challenge] = []
    position = 0
    while True:
        separators = _SEPARATORS.match(header, position)
        assert separators is not None
        position = separators.end()
        match = _PARAMETER.match(header, position)
        if match is not None and found:
            quoted = match[2]
            value = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1].parameters[match[1].lower()] = value
        else:
            match = _SCHEME.match(header, position)
            if match is None:
                return found
            found.append(Challenge(match[1].lower(), {}))
        position = match.end()


class Authorizer:
    """The Authorization header for one repository, made when a registry asks for it. For all threads of an image."""

    def __init__(self, name: ImageName, network: Network) -> None:
        self.header: str | None = None
        self._name = name
        self._network = network
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._looked = False
        self._worked = False

    def worked(self, used: str | None) -> None:
        """Note that a header was taken: a later refusal then means that its time is over."""
        if used is not None and used == self.header:
            self._worked = True

    def answer(self, refusal: Answer, used: str | None, connection: Connection) -> bool:
        """Take a 401 and make a new header; False where there is nothing that was not refused already.

        Raises ServiceError where the token service refuses the login or gives no token.
        """
        with self._lock:
            if self.header != used:
                return True  # another thread was told the same
            if used is not None and not self._worked:
                return False
            challenges = {each.scheme: each.parameters for each in parse_challenges(_challenge(refusal.headers))}
            if "bearer" in challenges:
                header = f"Bearer {self._token(challenges['bearer'], connection)}"
            elif "basic" in challenges:
                login = self.login()
                if login is None or not login.user:
                    return False
                header = _basic(login)
            else:
                return False
            if header == used and not header.startswith("Bearer "):
                return False
            self.header = header
            self._worked = False
            return True

    def login(self) -> Login | None:
        """Return the login that docker or podman keeps for the registry."""
        if not self._looked:
            self._login = login_of(self._name.domain)
            self._looked = True
        return self._login

    def logged_in(self) -> bool:
        """Tell whether a login was asked for and there is one."""
        return self._login is not None

    def refused(self) -> ServiceError:
        """Return the error for a registry that does not let us in."""
        name, domain = self._name.repository, self._name.domain
        if self.logged_in():
            return ServiceError(
                f"{domain} refuses the login that is kept for it, or has no {name}",
                f"log in again, docker login {domain}, and check the name",
            )
        return ServiceError(
            f"{domain} gives {name} to nobody without a login, or has no such image",
            f"check the name, or log in first: docker login {domain}",
        )

    def _token(self, asked: Mapping[str, str], connection: Connection) -> str:
        realm = asked.get("realm", "")
        self._check(realm)
        wanted = {key: asked[key] for key in ("service",) if asked.get(key)}
        wanted["scope"] = asked.get("scope") or f"repository:{self._name.path}:pull"
        login = self.login()
        if login is not None and login.identity_token:
            form = {
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "refresh_token": login.identity_token,
                **wanted,
            }
            answer = connection.send("POST", realm, {}, data=form)
        else:
            url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(wanted)}"
            authorization = None if login is None or not login.user else _basic(login)
            answer = connection.send("GET", url, {}, authorization=authorization)
        if answer.status in (400, 401, 403):
            raise self.refused()
        if answer.status != 200:
            raise ServiceError(
                f"the token service {trouble.origin(realm)} answers with {answer.status}", "try again later"
            )
        return _token_in(answer.body, realm)

    def _check(self, realm: str) -> None:
        """Raise ServiceError for a token service that may not be asked: a login goes over HTTPS."""
        try:
            scheme, host = urlsplit(realm).scheme, urlsplit(realm).hostname
        except ValueError:
            scheme, host = "", None
        if scheme not in ("https", "http") or not host:
            raise ServiceError(f"{self._name.domain} wants a token and names no service that gives one")
        if scheme == "http" and not self._network.options.insecure:
            raise ServiceError(
                f"{self._name.domain} names the token service {trouble.origin(realm)}, which is not HTTPS",
                "--insecure allows plain HTTP",
            )


def _challenge(headers: Mapping[str, str]) -> str:
    return headers.get("WWW-Authenticate", "")


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def _token_in(body: bytes, realm: str) -> str:
    value: Any = None
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        for key in ("token", "access_token"):
            token = value.get(key)
            if isinstance(token, str) and _HEADER_VALUE.fullmatch(token):
                return token
    raise ServiceError(f"the token service {trouble.origin(realm)} gives no token")
