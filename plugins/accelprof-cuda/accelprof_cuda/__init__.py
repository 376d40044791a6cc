"""CUDA for accelprof: the NVTX backend, the tool ``nsys`` and its reader. Importing this imports no vendor module."""
