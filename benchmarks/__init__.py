"""Benchmarks; they mirror the package. ``python -m benchmarks`` runs them and prints tables and, with ``--json FILE``, data."""
