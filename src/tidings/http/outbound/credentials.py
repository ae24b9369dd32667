"""Verify the tokens of an issuer with its keys, and check bcrypt hashes.

The keys are fetched for the first token, and again when they are old. If a token names an unknown
key, the keys are fetched again, but at most once in `ASK_AGAIN_S`, so that forged tokens cause few
requests.

On Lambda, the request that needs a key fetches the keys. A server (`fetches` is False) fetches the
keys before it passes a request to a thread, so that an unresponsive issuer occupies no thread.
"""

from __future__ import annotations

import re
import time
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidings.core import limits
from tidings.core.auth import oidc_claims
from tidings.core.errors import Unavailable, WrongKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from urllib3 import BaseHTTPResponse

    from tidings.core.auth.guard import Allowed, Credential, Role
    from tidings.core.auth.oidc_claims import Issuer

    _Key = tuple[Any, Sequence[str]]  # a public key of PyJWT, and the algorithms that it may use

# The algorithms for each kind of key, by its `kty` and `crv`.
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_KIND = {
    ("RSA", None): _OF_RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
ALGORITHMS = tuple(each for algorithms in _OF_KIND.values() for each in algorithms)
KEYS_AGE_S = 3600  # maximum age of the keys; a withdrawn key is accepted for up to this time
KEYS_KEPT_S = 6 * 3600  # replaces `KEYS_AGE_S` while the issuer cannot be reached
ASK_AGAIN_S = 30  # minimum time between two fetches for unknown keys
TIMEOUT_S = 3  # timeout of a response of the issuer; a fetch of the keys needs two responses
BYTES_MAX = 256 * 1024  # maximum size of a response; the largest key sets have some 20 KB
TOKEN_CHARS_MAX = 8192  # larger tokens do not fit in a header of API Gateway
_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_WELL_KNOWN = "/.well-known/openid-configuration"


def matches_bcrypt(password: bytes, stored: bytes) -> bool:
    """Implement `CheckBcrypt`."""
    import bcrypt

    try:
        return bcrypt.checkpw(password, stored)
    except ValueError:  # bcrypt does not accept the password or the hash
        return False


class Tokens:
    """Implements `guard.Bearers`. *ask* fetches a JSON document from a URL."""

    def __init__(
        self,
        issuer: Issuer,
        ask: Callable[[str], dict[str, Any]],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer, self._ask, self._elapsed = issuer, ask, elapsed
        self._keys: dict[str, _Key] = {}
        self._requested_s: float | None = None
        self._keys_at, self._failed = 0.0, True  # `_failed` is True unless the last fetch succeeded
        self._lock = Lock()
        self.fetches = True  # if True, the call that needs a key fetches the keys

    def knows(self, given: Credential) -> bool:
        """Return True if *given* looks like a token. The signature is not checked here."""
        return bool(_TOKEN.fullmatch(given.secret))

    def may_block(self, feed: str, given: Credential) -> bool:
        """Return True, because checking a signature takes long, and may wait for a lock."""
        return True

    def authorize(self, feed: str, role: Role, given: Credential) -> Allowed:
        """Return the rights of the token *given*.

        Raises:
            WrongKey: the token has expired, or is not valid for this issuer and audience.
            OutsideKey: the token does not grant *role* on *feed*.
            Unavailable: the keys of the issuer could not be fetched.
        """
        return oidc_claims.grant_of(self._claims(given.secret), self._issuer.claim, feed, role)

    def _claims(self, token: str) -> dict[str, Any]:
        import jwt

        if len(token) > TOKEN_CHARS_MAX:
            raise WrongKey(f"has more than {TOKEN_CHARS_MAX} characters", field="token")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise WrongKey("must be signed with an asymmetric key", field="token")
            key, algorithms = self._key(str(header.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(algorithms),
                audience=self._issuer.audience,
                issuer=self._issuer.url,
                leeway=limits.TOKEN_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"], "verify_iat": False},
            )
        except (jwt.PyJWTError, OverflowError) as error:  # a time may be infinite
            rule = f"is not accepted: {type(error).__name__}"  # the error may contain the token
            raise WrongKey(rule, field="token") from None
        return claims

    def needs(self, token: str) -> bool:
        """Return True if the keys must be fetched before *token* is verified."""
        name = _key_name(token)
        return name is not None and self._is_due(name)

    def must_wait(self, token: str) -> bool:
        """Return True if *token* names an unknown key, so that a caller must wait for a fetch."""
        name = _key_name(token)
        return name is not None and self._find(name) is None

    def fetch(self) -> None:
        """Fetch the keys. After a failure, `authorize` raises Unavailable for unknown keys."""
        with self._lock:
            self._renew()

    def _find(self, name: str) -> _Key | None:
        """Return the key *name*. A single key need not be named by tokens, or by the issuer."""
        if len(self._keys) == 1 and (not name or "" in self._keys):
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    def _key(self, name: str) -> _Key:
        if self.fetches:
            with self._lock:
                if self._is_due(name):
                    self._renew()
        key = self._find(name)
        if key is None and self._failed:
            raise Unavailable("the issuer does not return its keys")
        if key is None:
            raise WrongKey("is signed by a key that the issuer does not have", field="token")
        return key

    def _is_due(self, name: str) -> bool:
        if self._requested_s is None:
            return True
        unknown = self._failed or self._find(name) is None
        return self._elapsed() - self._requested_s >= (ASK_AGAIN_S if unknown else KEYS_AGE_S)

    def _renew(self) -> None:
        """Fetch the keys. If that fails, keep the old ones up to an age of `KEYS_KEPT_S`."""
        self._requested_s = self._elapsed()
        try:
            self._keys, self._keys_at, self._failed = self._fetch_keys(), self._requested_s, False
        except Unavailable:
            self._failed = True
            if self._requested_s - self._keys_at >= KEYS_KEPT_S:
                self._keys = {}

    def _fetch_keys(self) -> dict[str, _Key]:
        """Return the issuer's keys by key id, "" for one without an id; ignore unusable keys."""
        where = self._ask(self._issuer.url.rstrip("/") + _WELL_KNOWN).get("jwks_uri")
        if not isinstance(where, str) or not oidc_claims.may_ask(where):
            raise Unavailable("the issuer does not name a valid address of its keys")
        listed = self._ask(where).get("keys")
        keys = {
            str(each.get("kid") or ""): key
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict) and (key := _parse_key(each)) is not None
        }
        if not keys:
            raise Unavailable("the keys of the issuer cannot be read")
        return keys


def _parse_key(document: dict[str, Any]) -> _Key | None:
    """Return the key in *document*, a JSON Web Key; None if it cannot verify a token."""
    import jwt

    try:
        algorithms = _OF_KIND[document["kty"], document.get("crv")]
        chosen = [each for each in algorithms if document.get("alg") in (None, each)]
        if not chosen or document.get("use", "sig") != "sig":
            return None
        return jwt.PyJWK(document, chosen[0]).key, chosen
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def _read(answer: BaseHTTPResponse, until_s: float) -> bytes:
    """Return the body, truncated after `BYTES_MAX` + 1 bytes."""
    body = b""
    while len(body) <= BYTES_MAX and (part := answer.read1(BYTES_MAX + 1 - len(body))):
        body += part
        if time.monotonic() > until_s:
            raise Unavailable("the issuer did not return its keys in time")
    return body


def _key_name(token: str) -> str | None:
    """Return the key id that *token* names, or None if the token cannot be valid."""
    import jwt

    if len(token) > TOKEN_CHARS_MAX:
        return None
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        return None
    return str(header.get("kid", "")) if header.get("alg") in ALGORITHMS else None


def ask_over_http(url: str, ca_certs: str | None = None) -> dict[str, Any]:
    """Return the JSON object at *url*; do not follow redirects.

    *ca_certs* is a file of CA certificates, or None for the certificates of the system.

    Raises:
        Unavailable: the object could not be fetched.
    """
    import json

    import urllib3

    from tidings.http.outbound.final_response import await_final

    host = urlsplit(url).hostname
    made = urllib3.PoolManager(cert_reqs="CERT_REQUIRED", ca_certs=ca_certs)
    with await_final(made) as pool:
        try:
            answer = pool.request(
                "GET", url, timeout=TIMEOUT_S, retries=False, redirect=False, preload_content=False
            )
            body = _read(answer, time.monotonic() + TIMEOUT_S)
            document = json.loads(body) if answer.status == 200 and len(body) <= BYTES_MAX else None
        except (urllib3.exceptions.HTTPError, ValueError, RecursionError) as error:
            raise Unavailable(f"{host} did not return its keys: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise Unavailable(f"{host} did not return its keys")
    return document
