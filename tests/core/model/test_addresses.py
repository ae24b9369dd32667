"""Addresses that a webhook may be at."""

from __future__ import annotations

import pytest
from tidings.core.model.addresses import may_call


@pytest.mark.parametrize(
    ("address", "everywhere", "allowed"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("172.16.0.1", False, True),
        ("192.168.1.1", False, True),
        ("100.64.0.1", False, True),
        ("::1", False, True),
        ("fd12::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("169.254.1.1", False, False),
        ("169.254.170.2", False, False),
        ("169.254.170.23", False, False),
        ("fe80::1", False, False),
        ("fd00:ec2::23", False, False),
        ("::ffff:169.254.170.2", False, False),
        ("64:ff9b::a9fe:aa02", False, False),
        ("64:ff9b::a00:1", False, True),
        ("64:ff9b:1::a9fe:aa02", False, False),
        ("64:ff9b:1:a9fe:aa:200::", False, False),
        ("::169.254.170.2", False, False),
        ("::10.0.0.1", False, True),
        ("::ffff:0:169.254.169.254", False, False),
        ("2001:0:4136:e378:8000:63bf:5601:5601", False, False),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("64:ff9b::5db8:d822", True, True),
        ("2002:a9fe:a9fe::1", False, False),
        ("2002:a01:203::1", False, True),
        ("fd00:ec2::254", False, False),
        ("0.0.0.0", False, False),
        ("224.0.0.1", False, False),
        # Metadata at addresses that look public or private.
        ("168.63.129.16", False, False),
        ("::ffff:168.63.129.16", False, False),
        ("192.0.0.192", False, False),
        ("100.100.100.200", False, False),
        ("fd20:ce::254", False, False),
        ("fd00:c1::a9fe:a9fe", False, False),
        ("fd00:42::42", False, False),
        # What IANA's registries have for something else, or for nothing.
        ("fec0::1", False, False),
        ("fec0::1%eth0", False, False),
        ("fe80::1%1", False, False),
        ("ff0e::1", False, False),
        ("240.0.0.1", False, False),
        ("255.255.255.255", False, False),
        ("0.1.2.3", False, False),
        ("192.0.0.9", False, False),
        ("192.0.2.1", False, False),
        ("192.88.99.1", False, False),
        ("198.18.0.1", False, False),
        ("203.0.113.9", False, False),
        ("100::1", False, False),
        ("2001:db8::1", False, False),
        ("2001:20::1", False, False),
        ("3fff::1", False, False),
        ("5f00::1", False, False),
        ("4000::1", False, False),
        ("::", False, False),
        # IPv4 within IPv6.
        ("::127.0.0.1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("::ffff:0:127.0.0.1", False, True),
        ("64:ff9b::7f00:1", False, True),
        ("2002:7f00:1::1", False, True),
        ("2002:5db8:d822::5efe:7f00:1", False, True),
        ("::5efe:7f00:1", False, False),
        ("2606:2800:220:1::5efe:7f00:1", False, True),
        ("2606:2800:220:1:200:5efe:7f00:1", False, True),
        ("2606:2800:220:1:300:5efe:a9fe:a9fe", False, False),
        ("2606:2800:220:1:200:5efe:5db8:d822", True, True),
        ("fd12::200:5efe:10.0.0.1", False, True),
        ("2001:0:a9fe:a9fe:0:0:5db8:d822", False, False),
    ],
)
def test_where_a_hook_may_be(address: str, everywhere: bool, allowed: bool) -> None:
    """Only on the Internet, or on private networks if allowed; cloud metadata is never called."""
    assert may_call(address, private=False) is everywhere
    assert may_call(address, private=True) is allowed
