"""Whom HTTPS connections trust."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """httpx's own choice, made once: it reads every root certificate, which takes 30 ms."""
    return httpx.create_ssl_context()
