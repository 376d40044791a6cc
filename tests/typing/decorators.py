"""What type checkers must see: a timed function has the type it had. Read by mypy in test_typing.py, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from typing_extensions import assert_type

import accelprof
from accelprof import Worker


class Actor(Worker):
    @Worker.timer("actor/update")
    def update(self, batch: list[int], *, scale: float = 1.0) -> float:
        return sum(batch) * scale

    @Worker.timer
    def bare(self, x: int) -> str:
        return str(x)

    @Worker.timer(color="red", device=True)
    async def wait(self, seconds: float) -> bool:
        return seconds > 0

    @Worker.timer("items")
    def items(self, count: int) -> Iterator[int]:
        yield from range(count)

    @Worker.timer("stream")
    async def stream(self, count: int) -> AsyncIterator[int]:
        for index in range(count):
            yield index

    @staticmethod
    @Worker.timer("static")
    def static(x: int) -> int:
        return x


@accelprof.timer("plain")
def plain(a: int, b: str = "") -> tuple[int, str]:
    return a, b


actor = Actor()
assert_type(actor.update([1], scale=2.0), float)
assert_type(actor.bare(1), str)
waiting = assert_type(actor.wait(0.1), Coroutine[Any, Any, bool])
assert_type(actor.items(2), Iterator[int])
assert_type(actor.stream(2), AsyncIterator[int])
assert_type(Actor.static(1), int)
assert_type(plain(1), tuple[int, str])
assert_type(actor.pop_execution_times(), dict[str, float])
actor.update("not a list")  # type: ignore[arg-type]
plain()  # type: ignore[call-arg]
