"""torch.compile and timers: our frames are skipped by the compiler, so a timer in a compiled region is a plain graph break.

Without this, dynamo would try to trace the clock reads and warn about them. Nothing here imports torch.
"""

from __future__ import annotations

import sys
from types import CodeType

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any

_codes: list[CodeType] = []
_hidden = 0


def keep_out(function: Any, what: str) -> Any:
    """Mark ``function`` as a graph break that names itself under ``fullgraph=True``; its frames are never compiled."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = (
        f"accelprof {what} is not part of a compiled graph; time the caller, or leave fullgraph off"
    )
    hide(function.__code__)
    return function


def hide(*codes: CodeType) -> None:
    """Skip ``codes``, now if the compiler is loaded, else as soon as :func:`hide` is called after it was."""
    global _hidden
    _codes.extend(codes)
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    skip = getattr(compiler, "skip_code", None)
    if skip is None:
        return
    waiting = _codes[_hidden:]
    _hidden = len(_codes)
    for code in waiting:
        skip(code)
