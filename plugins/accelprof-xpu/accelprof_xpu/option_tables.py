"""Options of Intel's launchers, as data: ``flag``, ``value``, or the words that are allowed.

unitrace: tools/unitrace/README.md of intel/pti-gpu. VTune: the reference of ``vtune -collect`` in its user guide.
"""

from __future__ import annotations

from collections.abc import Mapping

FLAG, VALUE = "flag", "value"
Table = Mapping[str, "str | tuple[str, ...]"]


def _all(words: str, takes: str) -> dict[str, str | tuple[str, ...]]:
    return dict.fromkeys(words.split(), takes)


_ANALYSES = """hotspots performance-snapshot threading hpc-performance memory-access memory-consumption uarch-exploration io
gpu-offload gpu-hotspots npu system-overview anomaly-detection"""
VTUNE: Table = {
    "collect": tuple(_all(_ANALYSES, VALUE)),
    "target-duration-type": ("veryshort", "short", "medium", "long"),
    "finalization-mode": ("fast", "full", "deferred", "none"),
    "call-stack-mode": ("all", "user-only", "user-plus-one"),
    **_all(
        "knob duration resume-after data-limit ring-buffer result-dir user-data-dir app-working-dir cpu-mask", VALUE
    ),
    **_all("search-dir source-search-dir strategy", VALUE),
    **_all("start-paused follow-child no-follow-child allow-multiple-runs trace-mpi quiet verbose no-summary", FLAG),
    **_all("no-auto-finalize", FLAG),
}
VTUNE_SHORT = {"c": "collect", "k": "knob", "r": "result-dir", "d": "duration", "q": "quiet", "v": "verbose"}
UNITRACE: Table = {
    **_all("call-logging host-timing device-timing ccl-summary-report kernel-submission device-timeline opencl", FLAG),
    **_all("chrome-mpi-logging chrome-sycl-logging chrome-ccl-logging chrome-dnn-logging chrome-itt-logging", FLAG),
    **_all("chrome-call-logging chrome-kernel-logging chrome-device-logging chrome-no-thread-on-device", FLAG),
    **_all("chrome-no-engine-on-device verbose demangle separate-tiles tid pid conditional-collection", FLAG),
    **_all("metric-query metric-sampling stall-sampling", FLAG),
    **_all("output output-dir-path chrome-event-buffer-size group sampling-interval", VALUE),
}
UNITRACE_SHORT = {
    "c": "call-logging", "h": "host-timing", "d": "device-timing", "r": "ccl-summary-report", "s": "kernel-submission",
    "t": "device-timeline", "v": "verbose", "o": "output", "q": "metric-query", "k": "metric-sampling", "g": "group",
    "i": "sampling-interval",
}  # fmt: skip
