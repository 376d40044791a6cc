"""A stand-in for msprof: exports and analyses nothing, but leaves the files that torch_npu waits for; as a prefix it runs
its application with what the real one puts into the environment."""

import json
import os
import sqlite3
import subprocess
import sys
import time

FIRST_COLUMNS = "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"


def note(words):
    log = os.environ.get("CANN_STUB_LOG")
    if log:
        with open(log, "a") as file:
            file.write(f"{time.monotonic()} {os.getpid()} {os.getpid()} msprof {' '.join(words)}\n")


def export(place, kind):
    stamp = time.strftime("%Y%m%d%H%M%S")
    if kind == "db":
        database = sqlite3.connect(f"{place}/msprof_{stamp}.db")
        database.execute("CREATE TABLE TASK (startNs)")
        database.commit()
        database.close()
    else:
        below = f"{place}/mindstudio_profiler_output"
        os.makedirs(below, exist_ok=True)
        with open(f"{below}/op_summary_{stamp}.csv", "w") as file:
            file.write(FIRST_COLUMNS + "\n")
        with open(f"{below}/msprof_{stamp}.json", "w") as file:
            file.write("[]")


def main(words):
    note(words)
    options, application = {}, []
    for index, word in enumerate(words):
        if not word.startswith("--"):
            application = words[index:]
            break
        name, _, value = word[2:].partition("=")
        options[name] = value
    if "help" in options:
        print("  --type   db|text")
        return 0
    if os.environ.get("FAKE_MSPROF_FAIL"):
        return 1
    if application:
        place = os.path.join(options["output"], f"PROF_000001_{time.strftime('%Y%m%d%H%M%S')}000_AAAA")
        os.makedirs(os.path.join(place, "host"), exist_ok=True)
        told = {"msproftx": options.get("msproftx", "off"), "mstxDomainExclude": options.get("mstx-domain-exclude", "")}
        status = subprocess.run(application, env={**os.environ, "PROFILER_SAMPLECONFIG": json.dumps(told)}).returncode
        export(place, options.get("type", "text"))
        return status
    if options.get("export") == "on":
        export(options.get("output", "."), options.get("type"))
        # torch_npu looks every 0.1 s and ends its looking with the export: the real one writes early and exits late
        time.sleep(0.4)
    return 0


sys.exit(main(sys.argv[1:]))
