"""ROCm for accelprof: the ROCTX backend, the tools ``rocprof_sys`` and ``rocprofv3`` and their readers.

Importing this imports no vendor module.
"""
