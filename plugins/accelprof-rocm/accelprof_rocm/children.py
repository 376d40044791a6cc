"""Processes that a worker starts are not to be recorded with it: the tool's libraries leave the inherited environment."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

#: variables through which AMD's tools get into a process, with what separates their words
CARRIERS = {"LD_PRELOAD": ": ", "OMP_TOOL_LIBRARIES": ":", "ROCP_TOOL_LIBRARIES": ":", "HSA_TOOLS_LIB": ": "}
#: only meaningful together with the above
COMPANIONS = ("ROCPROFILER_LIBRARY_CTOR",)
_OURS = re.compile(r"^lib(rocprof|omnitrace|roctracer|rocprofiler)")


def leave_alone(env: MutableMapping[str, str]) -> list[str]:
    """Take AMD's tools out of ``env``, keep what others put there; returns the variables that changed.

    This process has the libraries loaded already, and they have read their settings.
    """
    changed = []
    for name, separators in CARRIERS.items():
        value = env.get(name)
        if not value:
            continue
        words = [word for word in re.split(f"[{separators}]+", value) if word]
        rest = [word for word in words if not _OURS.match(os.path.basename(word))]
        if rest == words:
            continue
        changed.append(name)
        if rest:
            env[name] = ":".join(rest)
        else:
            del env[name]
    if changed:
        for name in COMPANIONS:
            if env.pop(name, None) is not None:
                changed.append(name)
    return changed
