"""Decide by its code whether an error of a source or store passes, or what it is final for.

An error that the table does not have counts as an attempt; so do lost connections, which pass if
the store was open before and cannot be opened again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidings.pipelines.messages import Away, Busy, Verdict

_P, _M, _A = Verdict.PASSES, Verdict.MESSAGE, Verdict.ALL


def _of(passes: str, message: str = "", everything: str = "") -> Mapping[str, Verdict]:
    verdicts = {_P: passes, _M: message, _A: everything}
    return {code: each for each, codes in verdicts.items() for code in codes.split()}


# By system, the verdict for each code. PIPELINE_REFERENCE.md has the same. Codes of PostgreSQL with
# two characters are classes. Names are classes of exceptions of the client.
CODES: Mapping[str, Mapping[str, Verdict]] = {
    "PostgreSQL": _of(
        "08 25006 25P03 25P04 40 53 55006 55P03 57 58030",
        "22 23 44 54 DataError IntegrityError P0001",
        "28 3D000 42501 42703 42804",
    ),
    "MySQL": _of(
        "3 1021 1026 1030 1037 1038 1040 1041 1047 1053 1114 1135 1180 1203 1205 1206 1213 1226"
        " 1290 1317 1637 1792 1836 1927 1969 3024 3100 3101",
        "139 1118 1153 1436 1644 3140 3157 3819 4025 DataError IntegrityError",
        "1044 1045 1049 1054 1142 1143 1227 1698",
    ),
    "Redis": _of(
        "BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF NOREPLICAS OOM READONLY TRYAGAIN",
        "",
        "CROSSSLOT NOAUTH NOPERM WRONGPASS WRONGTYPE",
    ),
    "RabbitMQ": _of(
        "320 405 506 541 ConnectionBlockedTimeout",
        "311",
        "403 530 ProbableAccessDeniedError ProbableAuthenticationError",
    ),
    "Kafka": _of(
        "BROKER_NOT_AVAILABLE KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION"
        " NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION"
        " REQUEST_TIMED_OUT THROTTLING_QUOTA_EXCEEDED _MSG_TIMED_OUT",
        "INVALID_RECORD MSG_SIZE_TOO_LARGE",
        "CLUSTER_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED"
        " TRANSACTIONAL_ID_AUTHORIZATION_FAILED _AUTHENTICATION",
    ),
    "OpenSearch": _of("403/cluster_block_exception 408 429 502 503 504", "400 413", "401 403"),
    "MongoDB": _of(
        "24 50 64 91 100 112 189 262 462 10107 11600 11602 13435 13436 14031 16500 NotPrimaryError",
        "121 10334 11000 17280",
        "13 18",
    ),
    "AWS": _of(
        "BandwidthLimitExceeded ConnectTimeoutError ConnectionClosedError CredentialRetrievalError"
        " EndpointConnectionError ExpiredToken ExpiredTokenException InternalError"
        " InternalException InternalFailure InternalServerError InternalServiceError"
        " KMS.ThrottlingException KMSThrottlingException OverLimit ProxyConnectionError"
        " ProvisionedThroughputExceededException ReadTimeoutError RequestLimitExceeded"
        " RequestThrottled RequestThrottledException RequestTimeout ServiceUnavailable"
        " ServiceUnavailableException SlowDown ThrottledException Throttling"
        " ThrottlingException TooManyRequestsException",
        "",
        "AccessDenied AccessDeniedException AuthorizationError InvalidClientTokenId"
        " NoCredentialsError SignatureDoesNotMatch UnrecognizedClientException",
    ),
    "files": _of("EAGAIN EDQUOT EIO EMFILE ENFILE ENOMEM ENOSPC EROFS ESTALE", "", "EACCES EPERM"),
}
# libpq gives no code for a refused connection, only the server's text, which may be translated.
_CONNECTING = {
    "53300": ("too many clients", "connection slots are reserved", "too many connections"),
    "57P03": ("the database system is",),
}


def _codes_of_postgres(error: Any) -> Sequence[object]:
    if error.sqlstate:
        return error.sqlstate, error.sqlstate[:2]
    texts = ((code, text) for code, each in _CONNECTING.items() for text in each)
    return [code[:2] for code, text in texts if text in str(error)]


# By the module of an exception: the system, and a function that returns the codes of the exception,
# the most specific one first.
_CLIENTS: Mapping[str, tuple[str, Callable[[Any], Iterable[object]]]] = {
    "psycopg": ("PostgreSQL", _codes_of_postgres),
    "pymysql": ("MySQL", lambda error: error.args[:1]),
    "redis": (
        "Redis",
        lambda error: [getattr(error, "status_code", None) or str(error).partition(" ")[0]],
    ),
    "pika": ("RabbitMQ", lambda error: [getattr(error, "reply_code", "")]),
    "cimpl": ("Kafka", lambda error: [each.name() for each in error.args[:1]]),
    "opensearchpy": (
        "OpenSearch",
        lambda error: ("/".join(map(str, error.args[:2])), *error.args[:1]),
    ),
    "pymongo": ("MongoDB", lambda error: [getattr(error, "code", "")]),
    "botocore": (
        "AWS",
        lambda error: [getattr(error, "response", {}).get("Error", {}).get("Code")],
    ),
    "builtins": ("files", lambda error: [errno.errorcode.get(getattr(error, "errno", None) or 0)]),
}


def verdict(error: Exception) -> Verdict:
    """Return what *error* of a source or store means; `UNKNOWN` if the table does not have it."""
    if isinstance(error, Away):
        return Verdict.PASSES
    if isinstance(error, Busy):
        return error.verdict
    kinds = type(error).__mro__
    for kind in kinds:
        if client := _CLIENTS.get(kind.__module__.partition(".")[0]):
            system, codes = client
            return of_code(system, *codes(error), *(each.__name__ for each in kinds))
    return Verdict.UNKNOWN


def of_code(system: str, *codes: object) -> Verdict:
    """Return the verdict for the first of *codes* that the table has."""
    known = CODES[system]
    return next((known[str(each)] for each in codes if str(each) in known), Verdict.UNKNOWN)
