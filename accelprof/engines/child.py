"""Where engines find what their processes call: the entry points ``vllm.general_plugins`` and ``sglang.srt.plugins`` name this module."""

from accelprof.session.joining import install

__all__ = ["install"]
