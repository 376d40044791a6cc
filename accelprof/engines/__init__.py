"""Rollout engines: how each release switches on its own profiler, and how our instruments get into its processes."""
