"""Check the IP addresses that webhooks may call.

Python's `is_global` differs between releases and counts deprecated and reserved blocks as global.
The blocks of IANA's special-purpose address registries are therefore listed here.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# Webhooks never call these addresses, even if private addresses are allowed, because services at
# these addresses return credentials and metadata of machines, tasks and pods.
_NEVER = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",  # link-local: AWS, Azure, Google Cloud, Oracle, ECS, EKS and others
            "fe80::/10",  # link-local: the same services by IPv6
            "fd00:ec2::/32",  # AWS: instance metadata, pod identity, DNS
            "fd20:ce::/32",  # Google Cloud: metadata
            "fd00:c1::/32",  # Oracle Cloud: metadata
            "fd00:42::42/128",  # Scaleway: metadata
            "168.63.129.16/32",  # Azure: WireServer, at a public address
            "100.100.100.200/32",  # Alibaba Cloud: metadata, in the shared address space
        ),
    )
)
# Webhooks call these addresses only if the deployment allows it (TIDINGS_HOOKS_PRIVATE).
_PRIVATE = tuple(
    map(
        ip_network,
        (
            "127.0.0.0/8",  # loopback
            "::1/128",  # loopback
            "10.0.0.0/8",  # RFC 1918
            "172.16.0.0/12",  # RFC 1918
            "192.168.0.0/16",  # RFC 1918
            "fc00::/7",  # RFC 4193
            "100.64.0.0/10",  # shared address space, used by Kubernetes pods
        ),
    )
)
# Webhooks never call these addresses, which are neither globally reachable nor private.
_SPECIAL = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "192.0.0.0/24",  # IETF protocol assignments; 192.0.0.192 was metadata of Oracle Cloud
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # IETF protocol assignments
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_UNICAST = ip_network("2000::/3")  # all IPv6 space that IANA has allocated for the Internet
# If a host connects to an IPv6 address of these networks, a gateway or the kernel connects to the
# IPv4 address in the last four bytes of the IPv6 address.
_LAST_FOUR = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96", "::ffff:0:0/96")))
# An IPv6 address up to this number, such as :: or ::1, does not contain the IPv4 address of a host.
_LOW_MAX = 0xFFFF
# An interface identifier of ISATAP ends with an IPv4 address; the mask leaves out two flag bits.
_ISATAP, _ISATAP_MASK = 0x0000_5EFE, 0xFCFF_FFFF


def may_call(address: str, *, private: bool) -> bool:
    """Return True if a webhook may call the IP address *address*.

    *private* allows loopback and private networks. If *address* contains an IPv4 address, that
    address is checked as well.
    """
    return all(_may_reach(each, private=private) for each in _reachable(ip_address(address)))


def _may_reach(ip: IPv4Address | IPv6Address, *, private: bool) -> bool:
    if any(ip in each for each in _NEVER):
        return False
    if any(ip in each for each in _PRIVATE):
        return private
    return (ip.version == 4 or ip in _UNICAST) and not any(ip in each for each in _SPECIAL)


def _reachable(ip: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that a connection to *ip* may reach."""
    if isinstance(ip, IPv4Address):
        return [ip]
    number = int(ip)
    low = IPv4Address(number & 0xFFFF_FFFF)
    inner: list[IPv4Address | IPv6Address] = []
    if ip.sixtofour is not None:
        inner = [ip.sixtofour]
    elif ip.teredo is not None:
        inner = [*ip.teredo]
    elif number > _LOW_MAX and any(ip in each for each in _LAST_FOUR):
        return [low]
    is_isatap = number >> 32 & _ISATAP_MASK == _ISATAP
    return [*(inner or [ip]), *([low] if is_isatap else [])]
