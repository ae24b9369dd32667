"""Addresses that a webhook may be at."""

from __future__ import annotations

import pytest

from tidings.core.model.addresses import may_call

PUBLIC = """
    93.184.216.34 2606:2800:220:1::1 64:ff9b::5db8:d822 2606:2800:220:1:200:5efe:5db8:d822
"""
# Also as IPv4 within IPv6.
PRIVATE = """
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 ::1 fd12::1 ::ffff:10.0.0.1
    64:ff9b::a00:1 ::10.0.0.1 2002:a01:203::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 2002:7f00:1::1 2002:5db8:d822::5efe:7f00:1 2606:2800:220:1::5efe:7f00:1
    2606:2800:220:1:200:5efe:7f00:1 fd12::200:5efe:10.0.0.1
"""
# Link-local, metadata at any address that has it, multicast, what IANA's registries have for
# something else or for nothing; within IPv6 too.
NEVER = """
    169.254.1.1 169.254.170.2 169.254.170.23 fe80::1 fd00:ec2::23 ::ffff:169.254.170.2
    64:ff9b::a9fe:aa02 64:ff9b:1::a9fe:aa02 64:ff9b:1:a9fe:aa:200:: ::169.254.170.2
    ::ffff:0:169.254.169.254 2001:0:4136:e378:8000:63bf:5601:5601 169.254.169.254
    ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 fd00:ec2::254 0.0.0.0 224.0.0.1
    168.63.129.16 ::ffff:168.63.129.16 192.0.0.192 100.100.100.200 fd20:ce::254
    fd00:c1::a9fe:a9fe fd00:42::42 fec0::1 fec0::1%eth0 fe80::1%1 ff0e::1 240.0.0.1
    255.255.255.255 0.1.2.3 192.0.0.9 192.0.2.1 192.88.99.1 198.18.0.1 203.0.113.9 100::1
    2001:db8::1 2001:20::1 3fff::1 5f00::1 4000::1 :: ::5efe:7f00:1
    2606:2800:220:1:300:5efe:a9fe:a9fe 2001:0:a9fe:a9fe:0:0:5db8:d822
"""
ADDRESSES = [
    *((address, True, True) for address in PUBLIC.split()),
    *((address, False, True) for address in PRIVATE.split()),
    *((address, False, False) for address in NEVER.split()),
]


@pytest.mark.parametrize(("address", "everywhere", "allowed"), ADDRESSES)
def test_where_a_hook_may_be(address: str, everywhere: bool, allowed: bool) -> None:
    """Only on the Internet, or on private networks if allowed; cloud metadata is never called."""
    assert may_call(address, private=False) is everywhere
    assert may_call(address, private=True) is allowed
