"""The owner of a process's profiling state: windows, their triggers, and what is written down about them."""
