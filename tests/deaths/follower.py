"""Follows a plan (first argument, JSON) through steps of calls (second: [step or null, [phase, …]], …) and ends as the third says."""

import contextlib
import json
import os
import signal
import sys

import accelprof

PLAN, STEPS, HOW = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]

session = accelprof.configure(PLAN)
for number, phases in STEPS:
    with contextlib.nullcontext() if number is None else session.step(number):
        for phase in phases:
            inside = bool
            for name in reversed(phase.split(">")):  # the first is around the others
                inside = accelprof.timer(name)(inside)
            inside()
if HOW == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
