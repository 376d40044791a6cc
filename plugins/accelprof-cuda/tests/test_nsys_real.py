"""Plain processes under the real nsys on a machine without a GPU: what windows leave, when, and how it reads back."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from accelprof_cuda import installation, nsys_files, reader

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import load_any
from accelprof.analysis.timeline import write_timeline
from accelprof.catalogue import get_catalogue
from accelprof.contracts.spans import Clock, Kind, Trace
from accelprof.contracts.targets import Target
from accelprof.launch.command import assemble
from accelprof.output.layout import Layout
from accelprof.texts import bounded, encodable

pytestmark = [pytest.mark.nsys, pytest.mark.timeout(400)]

LABELS = [
    "a\0b",
    "a\\0b",
    "a%00b%%",
    "50 %%",
    "half\ud800",
    "new\nline",
    "cr\r",
    "tab\t",
    'q"uo\\te',
    "päth/☃",
    " x ",
    "y" * 5000,
]
WORKER = (
    f"""
LABELS = {LABELS!r}
"""
    + """
import json, os, signal, subprocess, sys, time
import accelprof
from accelprof import Worker

class Actor(Worker):
    @Worker.timer("actor/update", color="green")
    def update(self):
        self.inner()
    @Worker.timer("actor/inner")
    def inner(self):
        time.sleep(0.002)

config, run_dir, steps, ending = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
session = accelprof.configure(config, group="ActorGroup", rank=0, world_size=2, run_dir=run_dir)
actor = Actor()
for step in range(steps):
    with session.step(step):
        actor.update()
        if ending == "child" and step == 2:
            code = "from accelprof_cuda.backend import CudaBackend as B; from accelprof.contracts.backend import RangeSpec as R; b = B(); b.push(R('child')); b.pop(R('child'))"
            subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        if ending == "kill" and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        for label in LABELS if ending == "labels" else ():
            with accelprof.profiling_range(label):
                pass
        if ending == "exit" and step == 4:
            sys.exit(3)
with open(os.path.join(run_dir, "summary.json"), "w") as file:
    json.dump(session.close(), file)
with open(os.path.join(run_dir, "seen.json"), "w") as file:
    json.dump(sorted(os.listdir(session.layout.target_dir(session.target))), file)
"""
)


@dataclass
class Run:
    """What one worker left."""

    returncode: int
    run_dir: Path
    directory: Path
    output: str

    @property
    def reports(self) -> list[Path]:
        return sorted(self.directory.glob("*.nsys-rep"))

    @property
    def summary(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.run_dir / "summary.json").read_text())
        return loaded

    @property
    def artifacts(self) -> list[dict[str, Any]]:
        return [row for row in self.summary["journal"] if row["kind"] == "artifact" and row["tool"] == "nsys"]

    @property
    def windows(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.summary["journal"] if row["kind"] == "window"}

    @property
    def seen(self) -> list[str]:
        """Reports that were there when the session had closed and the process still lived."""
        return [name for name in json.loads((self.run_dir / "seen.json").read_text()) if name.endswith(".nsys-rep")]

    def traces(self) -> list[Trace]:
        return [reader.read(str(path)) for path in self.reports]


def phases(trace: Trace) -> list[tuple[str, int]]:
    return [(span.name, span.args["payload"]) for span in trace.of_kind(Kind.PHASE)]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, nsys: str) -> Callable[..., Run]:
    """``worker(config, ending=…)`` runs one worker as the launch says, under the real nsys."""

    def run(config: dict[str, Any], *, ending: str = "close", steps: int = 8, program: str = nsys) -> Run:
        place = tmp_path_factory.mktemp("a run's dir")
        script = place / "worker.py"
        script.write_text(WORKER)
        config = {"tool": "nsys", **config, "tools": {"nsys": {"nsys": program, **config.get("tools", {})}}}
        catalogue = get_catalogue()
        target = Target("ActorGroup", (), 0, 2, has_devices=False, interpreter=(sys.executable,))
        row = catalogue.plan(catalogue.load(config).config).assign(target)
        assert row.tool is not None
        directory = Layout(str(place)).target_dir(target)
        launch = catalogue.make_tool(row.tool, row.options).launch(row, directory)
        argv = assemble(launch, target.interpreter)
        argv += [str(script), json.dumps(config), str(place), str(steps), ending]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=240,
            cwd=place,
            env={**os.environ, **launch.env},
        )
        return Run(done.returncode, place, Path(directory), done.stdout + done.stderr)

    return run


@pytest.fixture(scope="module")
def three(worker: Callable[..., Run]) -> Run:
    """Windows on steps 2, 4 and 6 of 8."""
    return worker({"steps": [2, 4, 6]})


def test_three_windows_three_reports(three: Run) -> None:
    """Each window left its own report with that step's ranges and no other's; the worker lived on to the end."""
    assert three.returncode == 0, three.output
    assert [phases(trace) for trace in three.traces()] == [
        [("actor/update", step), ("actor/inner", step)] for step in (2, 4, 6)
    ]


def test_reports_are_there_when_the_last_window_closes(three: Run) -> None:
    """The session knows its three files, complete, each with its window, while the process still lives."""
    assert len(three.seen) == 3
    assert [row["state"] for row in three.artifacts] == ["complete"] * 3
    steps = {os.path.basename(row["path"]): three.windows[row["windows"][0]]["steps"] for row in three.artifacts}
    assert [steps[path.name] for path in three.reports] == [[2], [4], [6]]
    # nsys takes a second or more to end a capture, which is said of every close that long
    assert [text for text in three.summary["problems"] if "closing window" not in text] == []


def test_ranges_stand_on_the_epoch_clock(three: Run) -> None:
    """Each phase of a report lies between its window's opening and closing as the worker's clock had them."""
    for trace, row in zip(three.traces(), sorted(three.windows.values(), key=lambda row: row["sequence"]), strict=True):
        assert trace.clock is Clock.EPOCH
        for span in trace.of_kind(Kind.PHASE):
            assert row["opened"]["epoch_ns"] - row["open_ms"] * 1e6 - 5e6 <= span.start_ns
            assert span.end_ns <= row["closed"]["epoch_ns"] + 5e6


def test_colour_and_domain_arrive(three: Run) -> None:
    """The report has the phase's colour and accelprof's domain."""
    span = next(span for span in three.traces()[0].of_kind(Kind.PHASE) if span.name == "actor/update")
    assert (span.domain, span.color) == ("accelprof", "#008000")


def test_labels_are_those_that_were_given(worker: Callable[..., Run]) -> None:
    """What a C string cannot hold, and what formats spoil: each label once, in nsys's report and in the merged timeline."""
    run = worker({"steps": [2]}, ending="labels", steps=4)
    (trace,) = run.traces()
    ours = [span.name for span in trace.of_kind(Kind.PHASE) if not span.name.startswith("actor/")]
    assert ours == [encodable(label) for label in LABELS]
    merged = str(run.run_dir / "merged.json.gz")
    write_timeline(run.run_dir, merged)
    calls = {row.name: row.calls for row in attribute(load_any(merged).trace()).phases}
    assert {bounded(label): calls.get(bounded(label)) for label in LABELS} == {bounded(label): 2 for label in LABELS}


def test_the_cost_of_closing_is_written_down(three: Run) -> None:
    """Opening and closing a window stop every Python thread; both costs stand in the window's record."""
    assert all(row["open_ms"] > 1 and row["close_ms"] > 1 for row in three.windows.values())


def test_equal_to_nsys_stats(three: Run, nsys: str, tmp_path: Path) -> None:
    """Count and total of every range are those of nsys's own summary."""
    copy = tmp_path / "report.nsys-rep"
    shutil.copyfile(three.reports[0], copy)
    numbers = tuple(int(part) for part in installation.version(nsys).split(".")[:2])
    name = "nvtx_sum" if numbers >= (2023, 1) else "nvtxsum"
    done = installation.run([nsys, "stats", "--report", name, "--format", "csv", "--quiet", str(copy)], 120)
    text = done.stdout[done.stdout.index("Time (%)") :]
    theirs = {
        row["Range"]: (int(row["Instances"]), int(row["Total Time (ns)"]))
        for row in csv.DictReader(io.StringIO(text))
        if row.get("Range")
    }
    ours: dict[str, tuple[int, int]] = {}
    for span in three.traces()[0].of_kind(Kind.PHASE, Kind.WINDOW):
        count, total = ours.get(f"{span.domain}:{span.name}", (0, 0))
        ours[f"{span.domain}:{span.name}"] = (count + 1, total + span.duration_ns)
    assert ours == theirs


def test_fewer_windows_than_planned_are_delivered_at_close(worker: Callable[..., Run]) -> None:
    """The loop ends after two of three windows: closing the session has nsys write both, before the process ends."""
    run = worker({"steps": [2, 4, 60]}, steps=6)
    assert len(run.seen) == 2
    assert [phases(trace)[0] for trace in run.traces()] == [("actor/update", 2), ("actor/update", 4)]
    assert [run.windows[row["windows"][0]]["steps"] for row in run.artifacts] == [[2], [4]]


def test_a_window_for_each_phase(worker: Callable[..., Run]) -> None:
    """Discrete: the outermost phase of each step is a window of its own, and the number need not be known."""
    run = worker({"steps": [2, 4], "discrete": True})
    assert len(run.seen) == 2
    assert [phases(trace) for trace in run.traces()] == [
        [("actor/update", step), ("actor/inner", step)] for step in (2, 4)
    ]
    assert [run.windows[row["windows"][0]]["phase"] for row in run.artifacts] == ["actor/update"] * 2


def test_adjacent_steps_in_one_window(worker: Callable[..., Run]) -> None:
    """Merged steps 2 and 3 are one report without a number."""
    run = worker({"steps": [2, 3], "merge_steps": True})
    assert len(run.reports) == 1
    assert ".1." not in run.reports[0].name
    assert [step for _, step in phases(run.traces()[0])] == [2, 2, 3, 3]


def test_children_are_left_alone(worker: Callable[..., Run]) -> None:
    """A process that the worker starts inside its window leaves nothing in the worker's report and ends as ever."""
    run = worker({"steps": [2]}, ending="child")
    assert run.returncode == 0, run.output
    assert [name for name, _ in phases(run.traces()[0])] == ["actor/update", "actor/inner"]


def test_children_can_be_followed(worker: Callable[..., Run]) -> None:
    """``children: follow`` is nsys's own way: the child's ranges are in the report."""
    run = worker({"steps": [2], "tools": {"children": "follow"}}, ending="child")
    assert "child" in {span.name for span in run.traces()[0].of_kind(Kind.PHASE)}


def test_the_whole_process(worker: Callable[..., Run]) -> None:
    """``steps: process`` records from start to close, in one report that is there at close."""
    run = worker({"steps": "process"}, steps=3)
    assert len(run.seen) == 1
    assert [step for name, step in phases(run.traces()[0]) if name == "actor/update"] == [0, 1, 2]


TRAIN = """
import time
import accelprof

session = accelprof.configure(group="Trainers")
for step in range(4):
    with session.step(step), accelprof.profiling_range("train/step"):
        time.sleep(0.002)
session.close()
"""


def test_a_range_of_ones_own_begins_the_capture(nsys: str, tmp_path: Path) -> None:
    """Without steps a range of the program is the trigger call: the report has that range, not the later ones, and nothing is missing."""
    (tmp_path / "train.py").write_text(TRAIN)
    options = {
        "nsys": nsys,
        "capture-range": "nvtx",
        "nvtx-capture": "train/step@accelprof",
        "capture-range-end": "stop",
    }
    config = {"tool": "nsys", "steps": "process", "output_dir": str(tmp_path), "run": "run", "tools": {"nsys": options}}
    (tmp_path / "profile.yaml").write_text(json.dumps(config))
    argv = [sys.executable, "-m", "accelprof", "run", "-c", "profile.yaml", "--", sys.executable, "train.py"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "run").rglob("*.nsys-rep")
    ranges = [span.name for span in reader.read(str(report)).of_kind(Kind.RANGE, Kind.PHASE)]
    assert ranges == ["train/step"]


@pytest.mark.parametrize("ranks", [0, "all"])
def test_accelprof_run_around_a_script(nsys: str, tmp_path: Path, ranks: Any) -> None:
    """The launcher does not know the script's group; both windows have their report, and nothing is said to be missing."""
    (tmp_path / "train.py").write_text(TRAIN)
    config = {"tool": "nsys", "steps": [1, 2], "ranks": ranks, "output_dir": str(tmp_path), "run": "run"}
    (tmp_path / "profile.yaml").write_text(json.dumps({**config, "tools": {"nsys": {"nsys": nsys}}}))
    argv = [sys.executable, "-m", "accelprof.cli.main", "run", "-c", "profile.yaml", "--", sys.executable, "train.py"]
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    said = [text for text in manifest["problems"] if "closing window" not in text]
    assert (manifest["status"], said) == ("complete", [])
    held = {row["id"]: row["steps"] for row in manifest["windows"]}
    rows = [row for row in manifest["artifacts"] if row["tool"] == "nsys"]
    assert [(held[row["windows"][0]], row["state"]) for row in rows] == [([1], "complete"), ([2], "complete")]
    assert {row["group"] for row in rows} == {"Trainers"}


def test_killed_inside_a_window(worker: Callable[..., Run]) -> None:
    """SIGKILL in the second window: the first window's report is whole, the second exists, and the journal names it open."""
    from accelprof.output.manifest import read_journals

    run = worker({"steps": [2, 4, 6]}, ending="kill")
    assert run.returncode in (137, -signal.SIGKILL), run.output
    deadline = time.monotonic() + 20
    while len(run.reports) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert phases(run.traces()[0])[0] == ("actor/update", 2)
    rows = {row["id"]: row for journal in read_journals(str(run.run_dir)) for row in journal if row["kind"] == "window"}
    assert [(row["steps"], row["closed"] is None) for row in rows.values()] == [([2], False), ([4], True)]


def test_exit_inside_a_window(worker: Callable[..., Run]) -> None:
    """``sys.exit(3)`` in the second window: status kept, both reports there."""
    run = worker({"steps": [2, 4, 6]}, ending="exit")
    assert run.returncode == 3
    assert [phases(trace)[0][1] for trace in run.traces()] == [2, 4]


@pytest.fixture(scope="module")
def without_importer(tmp_path_factory: pytest.TempPathFactory, nsys: str) -> str:
    """An nsys that cannot find its importer, as slim images have it: links to everything but a copy of nsys itself."""
    home = installation.real_directory(nsys)
    slim = tmp_path_factory.mktemp("slim") / os.path.basename(home)
    slim.mkdir()
    for entry in os.scandir(home):
        if entry.name != "nsys":
            os.symlink(entry.path, slim / entry.name)
    shutil.copy2(os.path.join(home, "nsys"), slim / "nsys")
    return str(slim / "nsys")


def test_raw_data_is_converted(worker: Callable[..., Run], without_importer: str) -> None:
    """nsys leaves ``.qdstrm`` files; the session makes the reports of them with the importer that is here."""
    run = worker({"steps": [2, 4]}, program=without_importer)
    assert run.returncode == 0, run.output
    assert (
        sorted(path.suffix for path in run.directory.iterdir() if "nsys" in path.suffix or "qd" in path.suffix)
        == [".nsys-rep"] * 2 + [".qdstrm"] * 2
    )
    assert [phases(trace)[0] for trace in run.traces()] == [("actor/update", 2), ("actor/update", 4)]
    assert [(row["state"], row["path"].endswith(".nsys-rep")) for row in run.artifacts] == [("complete", True)] * 2


def test_raw_data_reads_like_a_report(worker: Callable[..., Run], without_importer: str, tmp_path: Path) -> None:
    """A ``.qdstrm`` is read through the importer and leaves nothing beside it."""
    run = worker({"steps": [2]}, program=without_importer)
    raw = shutil.copy(next(run.directory.glob("*.qdstrm")), tmp_path)
    assert phases(reader.read(raw)) == [("actor/update", 2), ("actor/inner", 2)]
    assert os.listdir(tmp_path) == [os.path.basename(raw)]


def test_a_cut_report_is_refused(three: Run, tmp_path: Path) -> None:
    """Half a report is refused with nsys's reason."""
    from accelprof.errors import ReadError

    path = tmp_path / "cut.nsys-rep"
    content = three.reports[0].read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReadError, match=r"cut\.nsys-rep: nsys .* export ended with status"):
        reader.read(str(path))


def test_the_trial_run_leaves_nothing(nsys: str, tmp_path: Path) -> None:
    """The preflight proves that nsys starts with these flags and this interpreter, and writes no file; a bad flag fails it."""
    catalogue = get_catalogue()
    target = Target("ActorGroup", (), 0, 2, has_devices=False, interpreter=(sys.executable,))
    for extra, works in ((["--wait=all"], True), (["--no-such-flag"], False)):
        config = {"tool": "nsys", "steps": [1], "tools": {"nsys": {"nsys": nsys, "extra_args": extra}}}
        row = catalogue.plan(catalogue.load(config).config).assign(target)
        launch = catalogue.make_tool("nsys", row.options).launch(row, str(tmp_path / "out"))
        done = subprocess.run(launch.preflight, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert (done.returncode == 0) is works, done.stdout + done.stderr
    assert os.listdir(tmp_path) == []


def test_doctor_takes_a_trial_window(nsys: str) -> None:
    """Doctor finds nsys, its importer, and takes a window with the real flags."""
    from accelprof_cuda.doctor import checks

    rows = {row.name: row for row in checks("/tmp")}
    assert rows["nsys window"].status == "ok", rows["nsys window"]
    assert installation.version(nsys) in rows["nsys"].detail
    assert rows["nsys importer"].status == "ok"


def test_every_file_of_the_process_is_found(three: Run) -> None:
    """What the worker looks for is what nsys wrote."""
    template = str(three.directory / "ActorGroup-r0-%h-%p")
    assert [
        path for path in three.reports if not Path(str(path)).match(os.path.basename(nsys_files.pattern(template)))
    ] == []
