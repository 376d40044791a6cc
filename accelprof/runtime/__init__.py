"""Inside a worker: timers, ranges, windows and the one session that owns them.

``timer``, ``ranges``, ``metrics``, ``worker`` and ``gate`` import the standard library only: they are what training
code loads. ``session`` and ``window`` come with ``configure``.
"""
