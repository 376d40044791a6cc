"""How long training waits for windows to close, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from accelprof.session.writing import group_timeout

if TYPE_CHECKING:
    from accelprof.contracts.tool import Tool
    from accelprof.voice import Voice

#: a close that takes longer is said
SLOW_NS = 1_000_000_000
LONGER = "give it a longer timeout, make windows shorter, or record less in them"


class CloseTimes:
    """Of one process. ``seconds`` of the last close, by tool."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self.seconds: dict[str, float] = {}

    def closed(self, sequence: int, tools: Iterable[Tool], took: int) -> None:
        """A close took ``took`` ns, which training felt: who, which tool, how long, and what it may come to."""
        if took < SLOW_NS:
            return
        seconds = took / 1e9
        each = ", ".join(f"{tool.name} {self.seconds[tool.name]:.1f} s" for tool in tools if tool.name in self.seconds)
        text = f"closing window {sequence} took {self._voice.label} {seconds:.1f} s ({each})"
        timeout = group_timeout()
        if timeout is not None and seconds > timeout / 2:
            text += f"; the process group gives up on a rank after {timeout:g} s: {LONGER}"
        self._voice.say(text)

    def waited(self, took: int) -> None:
        """The session's end waited ``took`` ns for files that were written behind training."""
        if took >= SLOW_NS:
            self._voice.say(
                f"closing the session of {self._voice.label} waited {took / 1e9:.1f} s for files of its windows"
            )

    def opens(self, sequence: int, tools: Iterable[Tool]) -> None:
        """Before a window opens: closes like the last ones may be longer than the other ranks wait."""
        expected = sum(self.seconds.get(tool.name, 0.0) for tool in tools)
        if expected < SLOW_NS / 1e9:
            return
        timeout = group_timeout()
        if timeout is not None and expected > timeout / 2:
            text = f"window {sequence} is about to open; closing the last one took {expected:.1f} s, and the process group gives up on a rank after {timeout:g} s: {LONGER}"
            self._voice.say(text, about="a close that nears the process group's timeout")
