"""Tokens of an issuer, from its keys over HTTP to the answers of a function."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from functions.connect.handler import handle as connect
from functions.ingest.handler import handle as ingest
from functions.receive.handler import handle as receive
from tests.contract.answering import HttpServer, ReceivedRequest, Reply
from tests.functions.cloud import CONNECTION, Cloud, event, message, restart
from tests.functions.streaming import SSE, read
from tidings.aws import stage as host
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.oidc_claims import Issuer
from tidings.core.errors import OutsideKey, Unavailable, WrongKey
from tidings.core.model.timestamps import MS_MAX
from tidings.http.outbound.credentials import (
    ASK_AGAIN_S,
    KEYS_AGE_S,
    KEYS_KEPT_S,
    Tokens,
    ask_over_http,
)
from tidings.http.settings import WrongSetting

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
GRANTS = [{"feed": "main", "roles": ["read", "ingest"]}]


class IdentityProvider(HttpServer):
    """Serves *keys*, JSON Web Keys by their names; *asked* are the requested paths."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.keys = {"one": json.loads(RSAAlgorithm.to_jwk(RSA.public_key()))}
        self.asked: list[str] = []
        self.status = 200

    @property
    def issuer(self) -> Issuer:
        return Issuer(self.url, "tidings", "feeds")

    def _reply(self, request: ReceivedRequest) -> Reply:
        self.asked.append(request.path)
        keys = [{**key, **({"kid": name} if name else {})} for name, key in self.keys.items()]
        told = {"keys": keys} if request.path == "/keys" else {"jwks_uri": f"{self.url}/keys"}
        return Reply(json.dumps(told).encode(), self.status)


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as server:
        yield server


class Clock:
    """A clock that only the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(provider: IdentityProvider, clock: Clock) -> Tokens:
    return Tokens(provider.issuer, ask_over_http, clock)


def token(
    provider: IdentityProvider, *, key: Any = RSA, alg: str = "RS256", kid: str = "one", **more: Any
) -> str:
    now = int(time.time())
    told = {"iss": provider.url, "aud": "tidings", "exp": now + 600, "feeds": GRANTS, **more}
    claims = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(claims, key, algorithm=alg, headers={"kid": kid})


def shown(text: str) -> Credential:
    return Credential(text, bearer=True)


def test_a_token_of_the_issuers_opens_what_it_grants(
    tokens: Tokens, provider: IdentityProvider
) -> None:
    """Its keys are asked for once."""
    given = shown(token(provider))

    assert tokens.knows(given)
    for _ in range(3):
        assert tokens.authorize("main", Role.INGEST, given).admission.until_ms > 0
    with pytest.raises(OutsideKey):
        tokens.authorize("main", Role.ADMIN, given)
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


def minutes(count: int) -> int:
    return int(time.time()) + count * 60


WRONG: dict[str, Callable[[IdentityProvider], str]] = {
    "another audience": lambda p: token(p, aud="other"),
    "another issuer": lambda p: token(p, iss="https://other.example"),
    "expired": lambda p: token(p, exp=minutes(-2)),
    "not yet": lambda p: token(p, nbf=minutes(2)),
    "for ever": lambda p: token(p, exp=None),
    "for nobody": lambda p: token(p, aud=None),
    "of nobody": lambda p: token(p, iss=None),
    "another key": lambda p: token(
        p, key=rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ),
    "a shared secret": lambda p: token(p, key="a secret that is long enough for it", alg="HS256"),
    "no signature": lambda p: token(p, key=None, alg="none"),
    "another algorithm": lambda p: token(p, key=EC, alg="ES256"),
    "an unknown key": lambda p: token(p, kid="two"),
    "a wrong signature": lambda p: token(p)[:-8] + "AAAAAAAA",
    "a cut signature": lambda p: token(p).rpartition(".")[0] + ".",
    "no token": lambda p: "eyJh.eyJh.",
    "too long": lambda p: token(p, groups=["0" * 36] * 300),
    "an infinite time": lambda p: token(p, exp=float("inf")),
    "a list of algorithms": lambda p: "eyJhbGciOltdfQ.eyJh.AAAA",  # {"alg":[]}
}


@pytest.mark.parametrize("name", WRONG)
def test_a_token_that_is_not_the_issuers_for_us_is_refused(
    tokens: Tokens, provider: IdentityProvider, name: str
) -> None:
    """The error says what is wrong and never the token."""
    text = WRONG[name](provider)

    assert tokens.knows(shown(text))
    with pytest.raises(WrongKey) as refused:
        tokens.authorize("main", Role.READ, shown(text))
    assert text not in json.dumps(refused.value.body())


P384, P521 = (ec.generate_private_key(each) for each in (ec.SECP384R1(), ec.SECP521R1()))
ED = ed25519.Ed25519PrivateKey.generate()
JWKS = {
    **{f"rsa {bits}": RSAAlgorithm.to_jwk(RSA.public_key()) for bits in (256, 384, 512)},
    **{key.curve.name: ECAlgorithm.to_jwk(key.public_key()) for key in (EC, P384, P521)},
    "ed": OKPAlgorithm.to_jwk(ED.public_key()),
}
UNUSABLE: dict[str, Any] = {
    "post-quantum": {"kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA"},
    "shared": {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
    "broken": {"kty": "RSA", "n": "!!!", "e": "AQAB"},
    "listed": {"kty": ["RSA"]},
}


@pytest.mark.parametrize("names_algorithm", [False, True])
@pytest.mark.parametrize(
    ("key", "kid", "alg"),
    [
        *(
            (RSA, f"rsa {bits}", f"{kind}{bits}")
            for bits in (256, 384, 512)
            for kind in ("RS", "PS")
        ),
        (EC, "secp256r1", "ES256"),
        (P384, "secp384r1", "ES384"),
        (P521, "secp521r1", "ES512"),
        (ED, "ed", "EdDSA"),
    ],
)
def test_every_algorithm_is_accepted(
    tokens: Tokens, provider: IdentityProvider, key: Any, kid: str, alg: str, names_algorithm: bool
) -> None:
    """Whether the issuer's key names it or not, and next to keys that are unusable (P10.8)."""
    provider.keys = {name: json.loads(text) for name, text in JWKS.items()} | UNUSABLE
    if names_algorithm:
        provider.keys[kid]["alg"] = alg
    given = shown(token(provider, key=key, alg=alg, kid=kid, iat=minutes(5), exp=10**50))

    assert tokens.authorize("main", Role.READ, given).admission.until_ms == MS_MAX
    with pytest.raises(WrongKey):  # a key is used only with the algorithms of its kind
        tokens.authorize("main", Role.READ, shown(token(provider, key=RSA, kid="ed")))


@pytest.mark.parametrize("named", ["", "one"])
@pytest.mark.parametrize("kid", ["", "one"])
def test_a_single_key_need_not_be_named(
    tokens: Tokens, provider: IdentityProvider, named: str, kid: str
) -> None:
    provider.keys = {named: provider.keys["one"]}
    assert tokens.authorize("main", Role.READ, shown(token(provider, kid=kid)))


@pytest.mark.parametrize("moment", [{"exp": -30}, {"nbf": 30}])
def test_clocks_may_differ_by_a_minute(
    tokens: Tokens, provider: IdentityProvider, moment: dict[str, int]
) -> None:
    """Both ways."""
    told: dict[str, Any] = {name: int(time.time()) + away for name, away in moment.items()}

    assert tokens.authorize("main", Role.READ, shown(token(provider, **told)))


def test_a_new_key_is_found_and_made_up_ones_ask_nobody(
    tokens: Tokens, provider: IdentityProvider, clock: Clock
) -> None:
    """An unknown name is asked for at most once in half a minute."""
    tokens.authorize("main", Role.READ, shown(token(provider)))
    provider.keys["two"] = json.loads(ECAlgorithm.to_jwk(EC.public_key()))
    rotated = shown(token(provider, key=EC, alg="ES256", kid="two"))
    for _ in range(3):
        with pytest.raises(WrongKey):
            tokens.authorize("main", Role.READ, rotated)
    assert provider.asked.count("/keys") == 1

    clock.now += ASK_AGAIN_S
    assert tokens.authorize("main", Role.READ, rotated)
    assert provider.asked.count("/keys") == 2


def test_a_key_that_was_withdrawn_ends_within_the_hour(
    tokens: Tokens, provider: IdentityProvider, clock: Clock
) -> None:
    """Known keys are asked for again."""
    given = shown(token(provider))
    tokens.authorize("main", Role.READ, given)
    provider.keys = {"two": provider.keys["one"]}
    clock.now += KEYS_AGE_S

    with pytest.raises(WrongKey):
        tokens.authorize("main", Role.READ, given)


def test_an_issuer_that_is_away_locks_nobody_out_for_a_while(
    tokens: Tokens, provider: IdentityProvider, clock: Clock
) -> None:
    """Known keys count for some hours; no token is reported as wrong."""
    given = shown(token(provider))
    tokens.authorize("main", Role.READ, given)
    provider.status = 500
    clock.now += KEYS_AGE_S
    assert tokens.authorize("main", Role.READ, given)

    clock.now += KEYS_KEPT_S
    with pytest.raises(Unavailable):
        tokens.authorize("main", Role.READ, given)


@pytest.mark.parametrize("told", [{"jwks_uri": "http://id.example/keys"}, {}, {"jwks_uri": 1}])
def test_keys_are_not_asked_for_in_the_open(told: dict[str, Any]) -> None:
    """A document with an address without TLS is rejected."""
    tokens = Tokens(Issuer("https://id.example", "tidings", "feeds"), lambda _: told)

    with pytest.raises(Unavailable):
        tokens.authorize("main", Role.READ, shown("eyJhbGciOiJSUzI1NiJ9.e30.AAAA"))


@pytest.mark.parametrize("text", ["", "a.b.c", "eyJ", "tdk_000000000000_" + "A" * 32, "eyJ" * 9999])
def test_a_password_is_not_taken_for_a_token(tokens: Tokens, text: str) -> None:
    """Passwords and keys go their own way."""
    assert not tokens.knows(Credential(text))


@pytest.fixture
def stage(cloud: Cloud, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Closed to every client without a token."""
    named = {"issuer": provider.url, "audience": "tidings", "claim": "feeds"}
    monkeypatch.setenv("TIDINGS_OIDC", json.dumps(named))
    monkeypatch.setenv("TIDINGS_OPEN", "false")
    restart()
    return cloud


def post(authorization: str) -> dict[str, Any]:
    return ingest(event("http_post", more={"authorization": authorization}), None)


def test_a_producer_posts_with_a_token(stage: Cloud, provider: IdentityProvider) -> None:
    """As `Authorization: Bearer`; a wrong one is refused with a reason that does not repeat it."""
    wrong = token(provider, aud="other")

    assert post(f"Bearer {token(provider)}")["statusCode"] == 204
    refused = post(f"Bearer {wrong}")
    assert refused["statusCode"] == 401
    assert json.loads(refused["body"])["error"]["code"] == "wrong_key"
    assert wrong not in json.dumps(refused)


def test_a_socket_subscribes_with_a_token_until_it_expires(
    stage: Cloud, provider: IdentityProvider
) -> None:
    """As its `password`; the bound and the expiry of the token are stored with the connection."""
    bounded = [{"feed": "main", "roles": ["read"], "types": ["video"]}]
    exp = minutes(5)
    connect(event("socket_connect"), None)
    said = {"action": "subscribe", "password": token(provider, feeds=bounded, exp=exp)}
    receive(message(said), None)

    ((_, frame),) = stage.posted
    connection = host.stage().stores.connections.get(CONNECTION)
    assert connection is not None
    assert frame["reply"] == "subscribed"
    assert connection.admission.until_ms == (exp + 60) * 1000
    assert connection.filter.types == frozenset({"video"})


def test_a_stream_ends_when_its_token_does(stage: Cloud, provider: IdentityProvider) -> None:
    """Through the app, as a client sees it: a minute after the token's own end."""
    for left_s in (3, 12, 40):  # of the leeway; a busy machine may need more to begin
        last = int(time.time()) - 60 + left_s
        headers = {**SSE, "authorization": f"Bearer {token(provider, exp=last)}"}
        status, _, _ = read("/", headers=headers)
        if status == 200:
            break

    assert status == 200
    assert time.time() >= last + 60


def test_without_the_setting_nothing_of_it_is_loaded(cloud: Cloud) -> None:
    """A function that takes no tokens starts without the library."""
    assert host.stage().settings.issuer is None
    assert len(host.stage().guard.bearers) == 1


def test_a_setting_with_a_mistake_stops_the_function(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name."""
    monkeypatch.setenv("TIDINGS_OIDC", '{"issuer":"http://id.example"}')
    restart()
    with pytest.raises(WrongSetting, match="TIDINGS_OIDC"):
        host.stage()
