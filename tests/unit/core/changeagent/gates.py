"""Authentication for the requests that post and list changes."""

from __future__ import annotations

from tests.unit.core.scene import Scene
from tidings.core.auth.guard import FailedAttemptLimiter
from tidings.core.changeagent.documents import OperatorDocuments
from tidings.core.changeagent.users import CheckBcrypt, UserAuthenticator, UserVerifier
from tidings.http.outbound.credentials import matches_bcrypt


def gate(
    scene: Scene,
    documents: OperatorDocuments,
    bcrypt: CheckBcrypt = matches_bcrypt,
    failures: int = 50,
) -> UserAuthenticator:
    """Return an authenticator with the users of *documents*, else with the passwords of *scene*."""
    return UserAuthenticator(
        documents,
        scene.guard,
        UserVerifier(bcrypt, b"key"),
        FailedAttemptLimiter(scene.clock, failures),
    )
