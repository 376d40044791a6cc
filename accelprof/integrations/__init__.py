"""accelprof in the loops of others: one line each for Transformers' and TRL's trainers, Lightning, and Ray Train.

A module here imports its framework and is imported by nobody but its user. See docs/integrations.md.
"""
