"""Count events by type in an event loop, over Server-Sent Events: python count_types.py URL N"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import suppress

from tidings.client import Consumer


async def main(url: str, count: int) -> None:
    seen: Counter[str] = Counter()
    async with Consumer(url, transport="sse", cursor="0") as consumer:
        async for delivery in consumer:
            if delivery.is_operation:
                seen[delivery.data["type"]] += 1
            delivery.ack()
            if seen.total() == count:
                break
    for kind, number in seen.most_common():
        print(kind, number)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
