"""The conformance kit: passes for backends that keep the contract, and fails for ones that break it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from accelprof.backends.cpu import CpuBackend
from accelprof.contracts.backend import Backend, Emitter, Probe, RangeSpec
from accelprof.contracts.spans import Clock, HostCalls, Kind, Span, Trace
from accelprof.contracts.targets import ArtifactFile, Launch
from accelprof.contracts.tool import Tool
from accelprof.testing import BackendConformance, FakeClock, RecordingBackend, RecordingTool, ToolConformance, capture


class TestRecording(BackendConformance):
    """The recording backend keeps the contract."""

    def make(self):
        return RecordingBackend()


class TestStrictlyNested(BackendConformance):
    """A backend that declares no overlapping ranges is never asked for one."""

    def make(self):
        class Strict(RecordingBackend):
            name = "strict"
            aliases = ()
            overlapping_ranges = False

            def start(self, spec):
                raise AssertionError("asked for an overlapping range")

        return Strict()


class TestWithoutNotes(BackendConformance):
    """A recording backend whose ranges go elsewhere is not taken for one whose labels are lost."""

    def make(self):
        class Elsewhere(RecordingBackend):
            name = "elsewhere"
            aliases = ()

            def push(self, spec):
                pass

            def pop(self, spec):
                pass

            def start(self, spec):
                return object()

            def end(self, spec, handle):
                pass

        return Elsewhere()


class TestRecordingTool(ToolConformance):
    """The recording tool keeps the contract."""

    def make(self):
        return RecordingTool()

    def can_capture(self):
        return True


def raises_of_a_backend(self):
    raise RuntimeError("no context")


@pytest.mark.parametrize(
    ("method", "check"),
    [
        ("pop", "test_the_users_exception_passes_once"),
        ("push", "test_push_and_pop_nest"),
        ("end", "test_start_and_end_overlap"),
        ("capture_stop", "test_capture_stop_is_harmless_when_nothing_runs"),
        ("mark", "test_mark"),
    ],
)
def test_the_kit_fails_a_broken_backend(method, check):
    """Each check really fails when the method it is about raises."""

    class Broken(RecordingBackend):
        name = "broken"
        aliases = ()

        def __init__(self):
            super().__init__()
            self.failing.add(method)

    kit = BackendConformance()
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(kit, check)(Broken())


def ends_another(self, spec, handle):
    RecordingBackend.end(self, spec, 1)


def cuts_labels(self, spec):
    return RecordingBackend.bind(self, spec._replace(label=spec.label[:3]))


def one_stack():
    stack = []

    def pop(self, spec):
        if stack.pop() != spec.label:
            raise RuntimeError("wrong range")

    return {"push": lambda self, spec: stack.append(spec.label), "pop": pop}


@pytest.mark.parametrize(
    ("members", "check", "said"),
    [
        ({"synchronize": raises_of_a_backend}, "test_synchronize", r"synchronize\(\) raised RuntimeError: no context"),
        ({"start": lambda self, spec: 7}, "test_start_and_end_overlap", "gave two open ranges one handle, 7"),
        ({"end": ends_another}, "test_start_and_end_overlap", r"end\(\) got the handles \[1, 2\]; it ended \[1, 1\]"),
        (
            {"device_timer": raises_of_a_backend},
            "test_device_timer",
            r"device_timer\(\) raised RuntimeError: no context",
        ),
        ({"device_timer": lambda self: 5}, "test_device_timer", r"device_timer\(\) answered 5; a DeviceTimer or None"),
        (
            {"capture_start": raises_of_a_backend},
            "test_capture_start_and_stop",
            r"capture_start\(\) raised RuntimeError",
        ),
        ({"bind": cuts_labels}, "test_labels_arrive_whole", r"the library got \['kit', 'kit'\]"),
        (
            one_stack(),
            "test_threads_have_ranges_of_their_own",
            "with a range of each of two threads open, raised .*wrong",
        ),
    ],
)
def test_the_kit_names_what_is_wrong_with_a_backend(members, check, said):
    """A device that cannot be waited for, and handles that are not told apart."""
    broken = type("Broken", (RecordingBackend,), {"name": "broken", "aliases": (), **members})
    with pytest.raises((AssertionError, pytest.fail.Exception), match=said):
        getattr(BackendConformance(), check)(broken())


def test_the_class_itself_is_tested_whatever_is_installed():
    """A tool and a backend that have the name of an installed one are asked themselves; afterwards the installed ones are back."""
    from accelprof.catalogue import get_catalogue
    from accelprof.tools.torch import TorchTool

    class Namesake(Good):
        name = "torch"

        def close(self, window):
            return []

    class Kit(ToolConformance):
        def make(self):
            return Namesake()

    class Cpu(RecordingBackend):
        name = "cpu"
        aliases = ()

    with pytest.raises(AssertionError, match=r"states \[\]"):
        Kit().test_every_window_delivers()
    with capture(backend=Cpu, tool="torch", tools=(Namesake,), steps=[1]) as run:
        assert type(run.backend) is Cpu
        assert type(run.tool) is Namesake
        get_catalogue().register(type("Late", (), {})(), "late")
        assert get_catalogue().tool_class("torch") is Namesake
    assert get_catalogue().tool_class("torch") is TorchTool
    assert get_catalogue().backend_class("cpu") is CpuBackend


def test_the_kit_fails_a_probe_without_a_reason():
    """A probe must say something."""

    class Silent(Backend):
        name = "silent"

        def probe(self):
            return Probe(1, "")

    with pytest.raises(AssertionError):
        BackendConformance().test_the_constructor_takes_nothing_and_the_probe_never_raises(Silent())


def test_capture_undoes_itself():
    """After ``capture`` the process has no session and no recording backend."""
    import accelprof
    from accelprof.catalogue import get_catalogue

    with capture(steps=[1]) as run:
        assert accelprof.current_session() is run.session
    assert accelprof.current_session() is None
    assert "recording" not in get_catalogue().backend_names()


def test_fake_clock_moves_by_hand_only():
    """The fake clock is what timers read; it goes forward only, and the real one is back afterwards."""
    from accelprof.timing.gate import now_ns

    with FakeClock(5) as clock:
        clock.advance(1e-9)
        assert now_ns() == 6
        with pytest.raises(ValueError, match="back"):
            clock.advance(-1)
    assert now_ns() > 10**6


class Good(Tool):
    """Records in the process, a file a window, with the phases inside; each broken one below differs in one thing."""

    name = "good"
    labels: ClassVar[list[list[Any]]] = []

    class Noting(Emitter):
        def push(self, spec):
            Good.labels.append([spec.label, time.time_ns(), 0])

        def pop(self, spec):
            next(row for row in reversed(Good.labels) if row[0] == spec.label and not row[2])[2] = time.time_ns()

    def trigger(self, target):
        return "in_process"

    def emitter(self, backend):
        return self.Noting()

    def open(self, window):
        Good.labels.clear()

    def close(self, window):
        path = window.stem + ".good.json"
        with open(path, "w") as file:
            json.dump(Good.labels, file)
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @classmethod
    def can_read(cls, path):
        return path.endswith(".good.json")

    def read(self, path):
        with open(path) as file:
            spans = [Span(label, Kind.RANGE, start, end) for label, start, end in json.load(file)]
        trace = Trace(path, self.name, Clock.EPOCH)
        trace.spans.extend(spans)
        return trace


def writes(data, suffix=".good.json", place=None, windows=True):
    def close(self, window):
        path = (place or window.stem) + suffix
        with open(path, "w") as file:
            file.write(data)
        return [ArtifactFile(path, self.name, (window.id,) if windows else (), len(data))]

    return close


def raises(*_):
    raise OSError("the vendor said no")


def changed(**fields):
    """``close`` of the good tool, whose file is announced with other facts."""
    return lambda self, window: [replace(file, **fields) for file in Good.close(self, window)]


def reads(change=lambda span: None, **facts):
    """``read`` of the good tool with each span changed."""

    def read(self, path):
        trace = Good.read(self, path)
        for name, value in facts.items():
            setattr(trace, name, value)
        for span in trace.spans:
            change(span)
        return trace

    return read


relative = reads(clock=Clock.RELATIVE)


def later(span):
    span.start_ns, span.end_ns = span.start_ns + 10**12, span.end_ns + 10**12


def backwards(span):
    span.start_ns, span.end_ns = span.end_ns, span.start_ns - 7


def microseconds(span):
    span.start_ns, span.end_ns = span.start_ns / 1000, span.end_ns / 1000


def text_kind(span):
    span.kind = "range"


def asks_the_network(self, path):
    try:
        urllib.request.urlopen("http://example.invalid/format.json", timeout=5)
    except OSError:
        pass
    return Good.read(self, path)


def hangs(self, path):
    threading.Event().wait(5)  # ten times what the kit waits; the run's own report waits for it too


def elsewhere(self, window):
    with open("left-behind.log", "w") as file:
        file.write("x")
    return Good.close(self, window)


def beside_the_run(self, window):
    run = os.path.dirname(os.path.dirname(window.stem))
    with open(os.path.join(os.path.dirname(run), "tool.log"), "w") as file:
        file.write("x")
    return Good.close(self, window)


class LeavesOpen(Good.Noting):
    """Ends every range where the next window's files are written."""

    def pop(self, spec):
        pass


def closes_late(self, window):
    for row in Good.labels:
        row[2] = time.time_ns()
    return Good.close(self, window)


def of_the_first(self, window):
    first = Good.first = getattr(Good, "first", None) if window.sequence > 1 else window.id
    return [replace(file, windows=(first,)) for file in Good.close(self, window)]


def claims_all(cls, path):
    return True


def claims_json(cls, path):
    return path.endswith(".json")


def claims_zipped(cls, path):
    return path.endswith(".json.gz")


def looks_inside(cls, path):
    with open(path) as file:
        return file.read(1) == "["


def from_memory(self, path):
    trace = Trace(path, self.name, Clock.EPOCH)
    trace.spans.extend(Span(label, Kind.RANGE, start, end) for label, start, end in Good.labels)
    return trace


def by_its_path(self, path):
    if not hasattr(Good, "place") or os.path.basename(path) not in os.path.basename(Good.place):
        Good.place = path
    if path != Good.place:
        raise KeyError(path)
    return Good.read(self, path)


def linked(self, window):
    (made,) = Good.close(self, window)
    elsewhere = tempfile.mkdtemp(prefix="accelprof-kit-other-")
    atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
    real = os.path.join(elsewhere, os.path.basename(made.path))
    shutil.move(made.path, real)
    os.symlink(real, made.path)
    return [made]


def nameless(span):
    span.name = None


def no_length(span):
    span.end_ns = span.start_ns


BROKEN = {
    "reads from memory": ({"read": from_memory}, "delivers", "says the same when the file is full of zeros"),
    "reads by its path": ({"read": by_its_path}, "delivers", "read.. of a copy of .* raised KeyError"),
    "a link out of the run": ({"close": linked}, "delivers", "a link to .*outside the run's directory"),
    "a span without a name": ({"read": reads(nameless)}, "delivers", "a span is called None; a text is expected"),
    "spans without length": ({"read": reads(no_length)}, "delivers", "each of the .* spans ends where it begins"),
    "accelerators as a text": ({"accelerators": "cuda"}, "declared", "accelerators is 'cuda'; a frozenset of names"),
    "accelerators as a text, recorded": ({"accelerators": "cuda"}, "delivers", "accelerators is 'cuda'; a frozenset"),
    "accelerators of numbers": ({"accelerators": frozenset({1})}, "declared", "a frozenset of names"),
    "on_demand as a text": ({"on_demand": "no"}, "declared", "on_demand is 'no'; True or False"),
    "host_calls that are none": (
        {"host_calls": HostCalls("(")},
        "declared",
        "host_calls.launches is .*no regular expression",
    ),
    "writes_chrome_trace as nothing": ({"writes_chrome_trace": None}, "declared", "writes_chrome_trace is None; True"),
    "expects texts": ({"expects": lambda self, a, d: ["a.json"]}, "pure", r"\['a.json'\]; a list of Expectation"),
    "claims all JSON": ({"can_read": classmethod(claims_json)}, "claims", "notes.json'.* answered True"),
    "claims our timeline": ({"can_read": classmethod(claims_zipped)}, "claims", "timeline.json.gz'.* answered True"),
    "writes nothing": (
        {"close": lambda self, w: [ArtifactFile(w.stem + ".x", "b", (w.id,), 1)]},
        "delivers",
        "it is not there|missing",
    ),
    "writes empty files": ({"close": writes("")}, "delivers", "empty"),
    "another name than promised": (
        {"close": writes("[]", place="/tmp/accelprof-kit-other")},
        "delivers",
        "does not begin with the window's stem|share files",
    ),
    "returns no file": ({"close": lambda self, w: []}, "delivers", r"states \[\]"),
    "a file of no window": ({"close": writes("[]", windows=False)}, "delivers", "file of no window"),
    "files of nothing": ({"close": writes("[]")}, "delivers", "no span, mark or table at all"),
    "the phases are not in it": ({"close": writes('[["other", 1, 2]]'), "read": relative}, "delivers", "no span named"),
    "does not know its own file": (
        {"can_read": classmethod(lambda cls, path: False)},
        "delivers",
        "does not know its own file",
    ),
    "reads something else": ({"read": lambda self, path: [1]}, "delivers", "returned a list; a Trace"),
    "cannot open": ({"open": raises}, "delivers", "the vendor said no"),
    "an emitter that is none": ({"emitter": lambda self, backend: None}, "delivers", r"emitter\(\) of tool b"),
    "touches the disk on the driver": ({"launch": lambda self, a, d: (os.makedirs(d), Launch())[1]}, "pure", "exists"),
    "a trigger call that is none": ({"trigger": lambda self, target: "perhaps"}, "pure", "perhaps"),
    "another window's name": ({"close": of_the_first}, "delivers", "does not begin with the window's stem"),
    "a window that there is not": (
        {"close": changed(windows=("other",))},
        "delivers",
        r"of the windows \['other'\], which there",
    ),
    "wrong bytes": ({"close": changed(bytes=1)}, "delivers", r"ArtifactFile.bytes is 1; the file has \d+"),
    "another tool's name in the row": (
        {"close": changed(tool="c")},
        "delivers",
        "ArtifactFile.tool is 'c'; the tool is 'b'",
    ),
    "another tool's name in the trace": ({"read": reads(tool="c")}, "delivers", "says it is of tool 'c'; this is 'b'"),
    "end before start": ({"read": reads(backwards)}, "delivers", r"ends \d+ ns before it begins"),
    "times that are no whole ns": ({"read": reads(microseconds)}, "delivers", "whole ns are expected"),
    "a kind that is none": (
        {"read": reads(text_kind)},
        "delivers",
        "has kind 'range'; one of .*Kind is expected: PHASE",
    ),
    "times of another day": ({"read": reads(later)}, "delivers", "s outside its window; times of Clock.EPOCH"),
    "spans of earlier windows too": ({"open": lambda self, window: None}, "delivers", "has spans of another window"),
    "ranges left open": (
        {"emitter": lambda self, b: LeavesOpen(), "close": closes_late},
        "delivers",
        "is still open .* leaves ranges open",
    ),
    "read asks the network": ({"read": asks_the_network}, "delivers", "asked the network for .*example.invalid"),
    "read hangs": ({"read": hangs}, "delivers", "did not come back within 0.5 s"),
    "writes into the working directory": (
        {"close": elsewhere},
        "delivers",
        "outside its run's directory: .*left-behind.log",
    ),
    "writes beside the run": ({"close": beside_the_run}, "delivers", "outside its run's directory: .*tool.log"),
    "claims every file": ({"can_read": classmethod(claims_all)}, "claims", "answered True; it is no file of this tool"),
    "cannot say whose file it is": (
        {"can_read": classmethod(looks_inside)},
        "claims",
        "Is a directory",
    ),
    "takes any option": ({"__init__": lambda self, options=None: Tool.__init__(self)}, "options", "DID NOT RAISE"),
}
CHECKS = {
    "declared": "test_it_is_declared",
    "delivers": "test_every_window_delivers",
    "pure": "test_driver_side_is_pure",
    "options": "test_unknown_options_are_refused",
    "claims": "test_it_claims_its_own_files_only",
}


def kit_of(members):
    cls = type("B", (Good,), {"name": "b", **members}) if members else Good

    class Kit(ToolConformance):
        read_seconds = 0.5

        def make(self):
            return cls()

    return Kit()


def test_the_good_tool_passes(tmp_path):
    """What the broken ones are made of keeps the contract."""
    kit = kit_of({})
    kit.test_it_is_declared()
    kit.test_unknown_options_are_refused()
    kit.test_driver_side_is_pure(tmp_path)
    kit.test_it_claims_its_own_files_only()
    kit.test_every_window_delivers()
    kit.test_an_exception_in_a_window_spoils_nothing()


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_tool_is_caught_with_its_fault(fault, tmp_path):
    """Each of these differs from a good tool in one thing, and the kit names that thing."""
    members, check, said = BROKEN[fault]
    Good.labels.clear()
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception), match=said):
        getattr(kit_of(members), CHECKS[check])(*([tmp_path] if check == "pure" else []))


# --- device work -------------------------------------------------------------------------------------------------------


def works(launch=lambda span: None, work=lambda span: None):
    """``read`` of the good tool, with a launch and its kernel for each of the kit's ranges, each of them changed."""

    def read(self, path):
        trace = Good.read(self, path)
        for number, around in enumerate([span for span in trace.spans if span.name.startswith("kit/")]):
            same, at = {"correlation": number}, around.start_ns
            call = Span("launch", Kind.RUNTIME, at, around.end_ns, args=dict(same))
            kernel = Span("gemm", Kind.KERNEL, at + 500, at + 1500, device=0, stream=0, args=dict(same))
            launch(call)
            work(kernel)
            trace.spans += [call, kernel]
        return trace

    return read


def put(**fields):
    def change(span):
        for name, value in fields.items():
            setattr(span, name, value)

    return change


def at_zero(span):
    span.start_ns, span.end_ns = 500, 1500


def far_away(span):
    span.start_ns, span.end_ns = span.start_ns - 1_000_000_000, span.start_ns - 999_999_999


DEVICE = "test_device_work_belongs_to_the_phase_that_launched_it"
WORK = {
    "no launch": (
        works(put(kind=Kind.OPERATOR)),
        "have no launch, .*'gemm' has correlation 0, which no call of the host",
    ),
    "no correlation": (
        works(work=put(args={})),
        "2 of 2 pieces of device work have no launch.*'gemm' has no correlation",
    ),
    "a correlation of another kind": (
        works(work=put(args={"correlation": "x"})),
        "'gemm' has correlation 'x', which no",
    ),
    "no device": (works(work=put(device=None)), "2 pieces of device work have no device .*'gemm'"),
    "one correlation for all": (
        works(put(args={"correlation": 7}), put(args={"correlation": 7})),
        r"none counts in \['kit/launches too'\]",
    ),
    "a launch outside of its phase": (works(far_away), "no phase launched any of the device work"),
    "a launch of another process": (works(put(pid=9)), "no phase launched any of the device work"),
    "the device's own clock": (works(work=at_zero), r"'gemm' begins \d+.\d s before its launch: .*two clocks"),
    "work that is an annotation": (
        works(work=put(kind=Kind.DEVICE_ANNOTATION)),
        "has no device work, and some was done",
    ),
    "no device work at all": (Good.read, "has no device work, and some was done"),
}


def kit_with_work(read, **members):
    members = {"device_work": lambda self: None, **members}
    return type("Kit", (type(kit_of({"read": read})),), {"make": kit_of({"read": read}).make, **members})()


def test_device_work_with_its_launches_passes(tmp_path):
    """What the broken readers are made of keeps the contract, recorded and from a file."""
    kit_with_work(works()).test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)
    kit_with_work(works()).test_every_window_delivers()

    def a_file(self, directory):
        Good.labels[:] = [["kit/a", 10, 10_000]]
        with open(f"{directory}/a.good.json", "w") as file:
            json.dump(Good.labels, file)
        return file.name

    kit = kit_with_work(works(), device_file=a_file)
    kit.test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)
    for fault, said in (("no launch", "have no launch"), ("a launch outside of its phase", "no phase launched any")):
        kit = kit_with_work(WORK[fault][0], device_file=a_file)
        with pytest.raises(AssertionError, match=said):
            kit.test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)


@pytest.mark.parametrize("fault", WORK)
def test_device_work_without_its_launch_is_caught_with_its_fault(fault, tmp_path):
    """Kernels that no phase would ever get: each differs from good ones in one thing, and the kit names that."""
    read, said = WORK[fault]
    with pytest.raises(AssertionError, match=said):
        kit_with_work(read).test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)


def test_device_work_is_looked_at_in_every_window(tmp_path):
    """Also of a tool that says nothing of device work; and one that says there is none has none."""
    for fault, said in (("no launch", "have no launch"), ("no device", "have no device")):
        with pytest.raises(AssertionError, match=said):
            kit_of({"read": WORK[fault][0]}).test_every_window_delivers()
    with pytest.raises(AssertionError, match=r"has device work, \['gemm'\], and device_work_in_files is False"):
        kit_with_work(works(), device_work_in_files=False).test_every_window_delivers()


# --- tools that record from outside: their trigger call on the stand-in device ------------------------------------------


def gated(word, **members):
    """A tool with this trigger call, made by the stand-in device's capture or as a range of its own."""

    class Gated(Tool):
        name = "gated"

        def trigger(self, target):
            return word

        if word == "range":

            def open(self, window):
                self.handle = self.context.backend.start(RangeSpec("window"))

            def close(self, window):
                self.context.backend.end(RangeSpec("window"), self.handle)
                return []

    for name, member in members.items():
        setattr(Gated, name, member)

    class Kit(ToolConformance):
        def make(self):
            return Gated()

    return Kit()


@pytest.mark.parametrize("word", ["api", "range", "pause"])
def test_each_trigger_call_runs_on_the_stand_in_device(word):
    """None of the three is skipped, and a tool that makes its call once each window passes."""
    gated(word).test_the_trigger_call_is_made_once_a_window()


def twice(self, window):
    self.context.backend.capture_start()
    self.context.backend.capture_start()


def stopped_twice(self, window):
    self.context.backend.capture_stop()
    self.context.backend.capture_stop()
    return []


@pytest.mark.parametrize("word", ["api", "pause"])
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"open": lambda self, window: None, "close": lambda self, window: []}, r"two windows made the calls \[\]"),
        ({"open": twice, "close": Tool.close}, r"\['start', 'start', 'stop'"),
        ({"close": lambda self, window: []}, r"\['start', 'start'\]"),
        ({"close": stopped_twice}, r"\['start', 'stop', 'stop', 'start'"),
        ({"open": raises}, "the vendor said no"),
    ],
    ids=["no call", "twice", "never stopped", "stopped twice", "a call that fails"],
)
def test_a_broken_trigger_call_is_caught(word, members, said):
    """A window without the call, with two of them, or without the end is named with the calls that were made."""
    with pytest.raises(AssertionError, match=said):
        gated(word, **members).test_the_trigger_call_is_made_once_a_window()


@pytest.mark.parametrize(
    ("kit", "check", "override"),
    [
        (lambda: gated("none"), "test_the_trigger_call_is_made_once_a_window", "make()"),
        (lambda: gated("api", attach=raises), "test_the_trigger_call_is_made_once_a_window", "stand_in()"),
        (lambda: gated("api"), "test_every_window_delivers", "can_capture()"),
        (lambda: gated("api"), "test_an_exception_in_a_window_spoils_nothing", "can_capture()"),
        (lambda: kit_of({}), DEVICE, "device_work()"),
        (lambda: kit_of({}), DEVICE, "device_file()"),
        (lambda: kit_with_work(works(), device_work_in_files=False), DEVICE, "device_work_in_files"),
    ],
)
def test_a_skip_says_what_to_override(kit, check, override, tmp_path):
    """What the kit cannot try here names the method that would let it."""
    with pytest.raises(pytest.skip.Exception) as skipped:
        getattr(kit(), check)(*([tmp_path] if "device_work" in check else []))
    assert override in str(skipped.value)
    assert hasattr(ToolConformance, override.rstrip("()"))
