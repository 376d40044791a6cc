"""Ascend NPUs for accelprof: the accelerator type ``npu`` and the tools ``npu`` (torch_npu.profiler) and ``msprof``."""
