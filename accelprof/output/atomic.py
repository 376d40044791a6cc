"""Files that are whole or not there: written beside their place, then moved into it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import IO


def write(path: str, fill: Callable[[IO[str]], object], mode: int = 0o644) -> None:
    """``fill`` writes the text; a reader never sees half of it, and a failure leaves nothing behind.

    Raises:
        OSError: the directory cannot be written, or the disk is full; what stood at ``path`` stands there still.
    """
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            fill(file)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
