"""From a configuration to what each target does: pure functions."""
