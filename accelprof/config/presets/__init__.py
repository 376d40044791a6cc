"""Presets that Hydra users name in their defaults; each is a configuration of accelprof. See docs/dialects.md."""
