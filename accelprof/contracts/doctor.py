"""Rows of ``accelprof doctor``; plug-ins add theirs through ``accelprof_doctor(node)``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One fact about this machine.

    Attributes:
        area: ``core``, or the plug-in's or tool's name.
        name: what was looked at.
        status: ``ok`` | ``info`` | ``warn`` | ``fail``. ``fail`` makes the command end with status 1.
        detail: what was found.
        mend: what to do about it; empty when nothing is wrong.
    """

    area: str
    name: str
    status: str
    detail: str
    mend: str = ""
