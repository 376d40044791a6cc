"""The generator of spoiled rows for JAX's xplane files, which are made from protobuf's text by JAX itself."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.test_spoiled_rows import GONE, figures, leaves, skip_without

BEGIN = 1_795_852_566_000_000_000
#: key of our own annotations
KEY = "accelprof"
ODD = (GONE, "", "text", -1, 1.5, 2**64 - 1, 1e300)


def event(title: str, at: int, dur: int, **stats: object) -> dict[str, Any]:
    return {"name": title, "at": at, "dur": dur, "stats": stats}


def a_recording() -> dict[str, Any]:
    """Two threads with a range each; kernels, a collective and a copy on two GPUs; two runs of a program on the CPU."""
    run = {"hlo_op": "dot.1", "hlo_module": "jit_f", "run_id": 5, "device_ordinal": 0}
    execute = "CommonPjRtLoadedExecutable::Execute (jit_f)"
    host = {
        "python": [
            event("actor/update", 1000, 3000, **{KEY: "range"}),
            *(event("cuLaunchKernel", 1000 + 100 * number, 10, correlation_id=number) for number in (1, 2, 3)),
            event("PjitFunction(f)", 1400, 100), event(execute, 1410, 50, name="jit_f", run_id=5),
        ],
        "other": [
            event("ref/logp", 5000, 1000, **{KEY: "range"}),
            event("PjitFunction(f)", 5100, 100), event(execute, 5110, 50, name="jit_f", run_id=6),
        ],
        "tf_XLAEigen/1": [event("dot.1", 1500, 700, **run), event("dot.1", 5200, 700, **{**run, "run_id": 6})],
    }  # fmt: skip
    planes = {
        "/device:GPU:0": {
            "Stream #7(Compute)": [event("gemm", 2000, 500, correlation_id=1), event("psum_1", 2600, 300, correlation_id=2)],
            "XLA Modules": [event("jit_f", 2000, 900)],
        },
        "/device:GPU:1": {"Stream #9(MemcpyH2D)": [event("MemcpyH2D", 2100, 50, correlation_id=3)]},
        "/host:CPU": host,
    }  # fmt: skip
    return {"Task Environment": {"profile_start_time": BEGIN}, "/host:metadata": {"process_id": 41}, "planes": planes}


def stat(number: int, value: object) -> str:
    if isinstance(value, int):
        kind = "int64" if value < 1 << 63 else "uint64"
    else:
        kind = "double" if isinstance(value, float) else "str"
    return f"stats {{ metadata_id: {number} {kind}_value: {json.dumps(value)} }}"


def plane(title: str, lines: dict[str, Any], stats: dict[str, Any]) -> str:
    names: list[str] = []
    keys: list[str] = []

    def code(known: list[str], value: str) -> int:
        known += [] if value in known else [value]
        return known.index(value) + 1

    text = [f"planes {{ name: {json.dumps(title)}", *(stat(code(keys, key), value) for key, value in stats.items())]
    for number, (line, events) in enumerate(lines.items(), 1):
        text.append(f"lines {{ id: {number} name: {json.dumps(line)}")
        for one in events:
            fields = f"metadata_id: {code(names, one['name'])} offset_ps: {one['at'] * 1000} duration_ps: {one['dur'] * 1000}"
            text.append(
                f"events {{ {fields} {' '.join(stat(code(keys, key), value) for key, value in one['stats'].items())} }}"
            )
        text.append("}")
    for kind, known in (("event", names), ("stat", keys)):
        text += [
            f"{kind}_metadata {{ key: {at} value {{ id: {at} name: {json.dumps(name)} }} }}"
            for at, name in enumerate(known, 1)
        ]
    return "\n".join([*text, "}"])


def written(path: Path, recording: dict[str, Any]) -> Path:
    profile = pytest.importorskip("jax.profiler").ProfileData
    facts = [plane(title, {}, recording[title]) for title in ("/host:metadata", "Task Environment")]
    text = "\n".join([*facts, *(plane(title, lines, {}) for title, lines in recording["planes"].items())])
    path.write_bytes(profile.text_proto_to_serialized_xspace(text))
    return path


def asked(key: object, odd: object) -> bool:
    """Whether a reader can tell: what is not there in protobuf is 0 or empty; any whole number may be a run's, any text a program's."""
    if key == "run_id":
        return not isinstance(odd, int) and odd is not GONE
    if key in ("name", KEY, "hlo_op", "dur"):
        return False
    return (
        (key != "at" or odd == -1)
        and (key != "hlo_module" or odd != "text")
        and (key != "correlation_id" or odd is not GONE)
    )


def test_a_value_of_an_xplane_file(tmp_path: Path) -> None:
    """Missing, text, negative, a fraction or endless: what runs on a device is in the figures as it was, or the file says what is not."""
    skip_without("jax")
    good = a_recording()
    path = tmp_path / "x.xplane.pb"
    work, phases, whole = figures(written(path, good), "jax")
    assert whole
    assert [(name, own) for name, _, own in phases] == [("actor/update", 3), ("ref/logp", 1)]
    assert len(work) == 5
    unsaid, count = [], 0
    for *place, last in leaves(good):
        for odd in ODD:
            if not asked(last, odd) or last == "profile_start_time":
                continue
            spoiled = copy.deepcopy(good)
            at = spoiled
            for key in place:
                at = at[key]
            if odd is GONE:
                del at[last]
            else:
                at[last] = odd
            count += 1
            found = figures(written(path, spoiled), "jax")
            if found != (work, phases, True) and found[2]:
                unsaid.append((*place, last, odd))
    assert count > 90
    assert unsaid == []


@pytest.mark.parametrize("pid", [41, 42])
def test_hosts_of_one_directory_are_kept_apart(tmp_path: Path, pid: int) -> None:
    """Each host leaves a file, and all of them call their first card 0; in containers their processes have one number too."""
    skip_without("jax")
    from accelprof.analysis.attribution import attribute
    from accelprof.analysis.reading import load_any

    folder = tmp_path / "plugins" / "profile" / "2026_11_30"
    folder.mkdir(parents=True)
    written(folder / "10.0.0.1.xplane.pb", a_recording())
    other = {**a_recording(), "/host:metadata": {"process_id": pid}}
    other["planes"]["/host:CPU"]["python"][1]["stats"]["correlation_id"] = 9
    written(folder / "10.0.0.2.xplane.pb", other)
    alone = attribute(load_any(str(folder / "10.0.0.1.xplane.pb"), "jax").trace())
    found = attribute(load_any(str(tmp_path), "jax").trace())
    assert [(row.device, row.busy_ns) for row in found.devices] == [
        (f"10.0.0.{host}: {row.device}", row.busy_ns) for host in (1, 2) for row in alone.devices
    ]
    assert (found.kernels, found.unlaunched, found.launches_without_work) == (2 * alone.kernels, 1, 1)
    assert [(row.name, row.calls, row.wall_ns) for row in found.phases] == [
        (row.name, 2 * row.calls, 2 * row.wall_ns) for row in alone.phases
    ]


@pytest.mark.parametrize("odd", ["", "text", -1, 1.5, 2**64 - 1])
def test_a_beginning_that_is_none_is_said(tmp_path: Path, odd: object) -> None:
    """Times count from 0 then, as where the file does not say when it began."""
    skip_without("jax")
    from accelprof.analysis.reading import load_any

    recording = {**a_recording(), "Task Environment": {"profile_start_time": odd}}
    trace = load_any(str(written(tmp_path / "x.xplane.pb", recording)), "jax").trace()
    assert min(span.start_ns for span in trace.spans) == 1000
    assert trace.problems[0].startswith("the file does not say when it began")
