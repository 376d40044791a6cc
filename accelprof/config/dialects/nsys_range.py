"""Options of nsys in a foreign file that contradict the windows asked for; said in that file's own words."""

from __future__ import annotations

from collections.abc import Mapping

from accelprof.config.dialects.reading import Source

RANGE, RANGE_END = "capture-range", "capture-range-end"
#: the older name of the end, with truth values
STOP_ALIAS = "stop-on-range-end"
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def own_options(
    source: Source, path: str, options: Mapping[str, object], windows: int | None, by_step: bool
) -> dict[str, object]:
    """``options`` without what the plan decides; contradictions are refused.

    Args:
        windows: how many captures each process makes, ``None`` where that is not known.
        by_step: whether windows open by step at all; otherwise the options stay as they are.
    """
    result = {str(key): value for key, value in options.items() if value is not None}
    if STOP_ALIAS in result:
        word = str(result.pop(STOP_ALIAS)).strip().lower()
        if RANGE_END in result:
            source.refuse(f"{path}.{STOP_ALIAS}", f"says the same as {RANGE_END}; keep one", value=word)
        result[RANGE_END] = "stop" if word in TRUE else "none" if word in FALSE else word
        source.note(f"{path}.{STOP_ALIAS}", "changed", f"an older name of {RANGE_END}")
    if not by_step:
        return result
    trigger = result.pop(RANGE, None)
    if trigger is not None and trigger not in ("cudaProfilerApi", "nvtx"):
        source.refuse(
            f"{path}.{RANGE}",
            "the capture range is the trigger call that opens a window at the steps listed; with this value none could be opened",
            value=trigger,
            allowed="cudaProfilerApi, nvtx",
            mend="leave it out, or list no steps",
        )
    elif trigger is not None:
        said = (
            "each process gets the trigger call that works there: the profiler API with a device, an NVTX range without"
        )
        source.note(f"{path}.{RANGE}", "info", said)
    end = result.pop(RANGE_END, None)
    if end is None:
        return result
    way, _, number = str(end).partition(":")
    right = f"repeat:{windows}" if windows else "repeat"
    refused = ""
    if way in ("stop", "stop-shutdown") and windows != 1:
        refused = f"{windows or 'several'} windows are asked for, and nsys would keep the first"
    elif way == "none":
        refused = "a capture would go on after its window has ended"
    if refused:
        mend = f"{RANGE_END}: {right}, or leave it out"
        source.refuse(f"{path}.{RANGE_END}", refused, value=end, allowed=right, mend=mend)
    elif number and str(windows) != number:
        said = f"{end} does not fit the {windows if windows else 'unknown number of'} captures of the plan; {right} is used"
        source.note(f"{path}.{RANGE_END}", "changed", said)
    else:
        source.note(f"{path}.{RANGE_END}", "info", "the plan says how many captures each process makes")
    return result
