"""Wrappers keep what callers do with a generator."""

from __future__ import annotations

import asyncio

from accelprof.compat.kinds import by_kind


def test_async_generators_are_delegated_to():
    """What is sent or thrown in reaches the inner generator, and closing the outer one closes it at once."""
    seen = []

    class Worker:
        async def talk(self):
            item = 0
            try:
                while True:
                    try:
                        item = yield item
                        seen.append(("sent", item))
                    except KeyError as error:
                        seen.append(("thrown", error.args[0]))
                        item = -1
            finally:
                seen.append("closed")

    async def use():
        talk = by_kind(Worker.talk, lambda _: Worker.talk)(Worker())
        assert await talk.asend(None) == 0
        assert await talk.asend(7) == 7
        assert await talk.athrow(KeyError("x")) == -1
        await talk.aclose()
        assert seen == [("sent", 7), ("thrown", "x"), "closed"]

    asyncio.run(use())
