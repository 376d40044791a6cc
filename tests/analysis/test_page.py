"""The report's page in a real browser: what it shows is what the report says, it can be used, and it complains of nothing."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from accelprof.analysis.first import sentences
from accelprof.analysis.html import render_html
from accelprof.analysis.html.data import PARTS, page_data
from accelprof.analysis.phases import Call, PhaseTimes, WorkerTimeline, phase_rows
from accelprof.analysis.report_rows import CriticalPath, PathSegment, StepTime, Straggler
from accelprof.analysis.run import Run, WorkerId
from accelprof.analysis.seconds import Second
from accelprof.analysis.summary import Summary, summarise
from accelprof.analysis.units import duration as shown_duration
from accelprof.cli.compare import compare
from accelprof.cli.report import report
from accelprof.contracts.spans import Kind
from accelprof.output.records import Lack, Manifest, WindowRow

from .browser import Browser, chromium, eventually
from .conftest import RunMaker, complete

pytestmark = pytest.mark.chromium
IMAGES = Path(__file__).parents[2] / "docs/images"
PHASES = {"rollout/generate": 3.0, "reward": 0.4, "reference/log_prob": 1.1, "actor/update": 2.6}
ODD = "</script><script>document.title='taken'</script>\x1b[2J"


def made(ranks: int, steps: int, *, calls: bool = True, odd: str = ODD) -> Summary:
    """A run in which rank 1 is slow in ``actor/update``, the others waiting for it in ``all_reduce``."""
    rng = random.Random(3)
    timelines = []
    for rank in range(ranks):
        timeline = WorkerTimeline(WorkerId(f"k{rank}", f"Actor/rank{rank}", "Actor", rank))
        for step in range(steps):
            at = begin = step * 10_000_000_000
            for name, seconds in PHASES.items() if calls else list(PHASES.items())[:1]:
                slow = 1.25 if rank == 1 and name == "actor/update" else 1.0
                taken = int(seconds * 1e9 * (1 + 0.03 * rng.random()) * slow)
                timeline.calls.append(Call(name, False, False, at, at + taken, taken))
                times = timeline.phases.setdefault(name, PhaseTimes(Kind.PHASE))
                times.whole.append(taken)
                times.self_ns += taken
                times.shared_ns += taken
                times.parents.add(None)
                at += taken
            if calls:
                timeline.calls.append(Call("all_reduce", False, False, at - 300_000_000, at, 300_000_000))
            timeline.windows.append((f"w{rank}-{step}", (step,), begin, at))
        timelines.append(timeline)
    manifest = Manifest(run=f"grpo {odd}".strip(), created="2026-11-28T07:56:32+00:00", accelprof="0.1.0")
    summary = Summary(Run("/tmp", manifest), timelines, phase_rows(timelines))
    summary.problems.extend([odd] if odd else [])
    for timeline in timelines:
        window = timeline.window_ns
        cuts = sorted(rng.randrange(window // 2) for _ in range(len(PARTS) - 1))
        parts = dict(zip(PARTS, [end - start for start, end in zip([0, *cuts], [*cuts, window])]))
        parts["compute"], parts["unknown"] = parts["unknown"], parts["compute"]
        summary.seconds.append(Second(timeline.worker.label, "w", 0, window, parts))
    segments = [
        PathSegment(f"Actor/rank{int(n > 1)}", name, int(taken * 1e9)) for n, (name, taken) in enumerate(PHASES.items())
    ]
    late = Straggler(
        step=None, phase="all_reduce", number=0, group="Actor", worker="Actor/rank1", waited_ns=450_000_000,
        low_ns=400_000_000, high_ns=500_000_000, waited_by=["Actor/rank0"], late_in="actor/update", missing=[],
        without_ns=0, transfer_ns=9_000_000, on="host", process_group=None, after="Actor/rank0", alone_ns=450_000_000,
    )  # fmt: skip
    waits = summary.waits
    waits.steps.extend(StepTime(step, int(7.2e9 + 1e6 * step), step % 4 == 0) for step in range(steps))
    waits.stragglers.extend(replace(late, step=step, waited_ns=late.waited_ns + step) for step in range(steps))
    waits.critical_path.extend(CriticalPath(step, 7_100_000_000 + step, segments) for step in range(min(steps, 40)))
    return summary


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"chromium cannot be driven: there is no {program} (.ci/install-chromium)")
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """The page of six ranks and eight steps, 1280 px wide and light."""
    path = tmp_path / "report.html"
    path.write_text(render_html(made(6, 8)), encoding="utf-8")
    browser.size(1280, 900)
    browser.media()
    browser.open(path)
    return browser


def test_the_page_complains_of_nothing_and_loads_nothing(page: Browser) -> None:
    """No error or warning in the console, no request but the file's own, and no label acts as markup or script."""
    assert page.log() == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.run("return document.title").startswith("grpo </script><script>")
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert "\\x1b[2J" in page.run("return document.body.innerText")
    assert page.run("return [...document.querySelectorAll('main>section')].filter(s => !s.hidden).map(s => s.id)") == [
        "first", "steps", "seconds", "heat", "stragglers", "lanes", "phases", "", "files",
    ]  # fmt: skip


def test_figures_are_the_reports(page: Browser) -> None:
    """Seconds, phases, stragglers and steps read back from the page are those of ``--json``."""
    report = made(6, 8).to_json()
    bars = page.run(
        "return [...document.querySelectorAll('#bars .bar')].map(b => [b.dataset.rank, +b.lastChild.dataset.window,"
        "Object.fromEntries([...b.querySelectorAll('i')].map(i => [i.dataset.part, +i.dataset.ns]))])"
    )
    expected = {
        f"{row['worker']} device 0": (row["window_ns"], {PARTS[part]: ns for part, ns in row["parts"].items() if ns})
        for row in report["seconds"]
    }
    assert {name: (window, parts) for name, window, parts in bars} == expected
    assert all(sum(parts.values()) == window for _, window, parts in bars)
    phases = page.run(
        "return [...document.querySelectorAll('#phases tr[data-phase]')].map(r => [r.dataset.phase, +r.cells[1].textContent, +r.cells[2].dataset.ns, +r.cells[6].dataset.ns])"
    )
    assert phases == [[row["phase"], row["calls"], row["total_ns"], row["self_ns"]] for row in report["phases"]]
    late = page.run(
        "return [...document.querySelectorAll('#stragglers tr[data-rank]')].map(r => [r.dataset.rank, r.dataset.phase, +r.cells[3].textContent, +r.cells[4].dataset.ns, +r.cells[6].dataset.ns, +r.cells[7].textContent])"
    )
    waits = [row["waited_ns"] for row in report["stragglers"]]
    assert late == [["Actor/rank1", "actor/update", 8, sum(waits), max(waits), 7]]
    steps = page.run("return JSON.parse(document.getElementById('data').textContent).steps")
    assert list(zip(steps["step"], steps["wall"])) == [(row["step"], row["wall_ns"]) for row in report["steps"]]


def test_the_first_sentences(page: Browser) -> None:
    """The slowest step, whom the others waited for and where it was late, and what profiling cost, in words."""
    lines = page.run("return [...document.querySelectorAll('.first')].map(p => p.textContent)")
    assert lines == sentences(made(6, 8).report())
    assert lines[0].startswith(
        "Step 7 took 7.1 s: the other ranks waited 450 ms for Actor/rank1 in all_reduce (late in actor/update);"
    )
    assert 2 <= len(lines) <= 3


def test_the_heat_map_has_the_times(page: Browser) -> None:
    """Each cell is the time of its rank in its step, to one part in 65535, the slowest rank at the top."""
    summary = made(6, 8)
    heat = page_data(summary, summary.report())["heat"]
    assert heat["ranks"][0] == "Actor/rank1"
    page.run("document.querySelector('#heat canvas').focus()")
    page.keys("down", "right", "right")
    text = page.run("return document.querySelector('#heat .read').textContent")
    assert text.startswith("Actor/rank1, step 2: ")
    calls = [
        call
        for call in summary.timelines[1].calls
        if 20_000_000_000 <= call.start_ns < 30_000_000_000 and call.phase != "all_reduce"
    ]
    assert abs(float(text.split(": ")[1].split(" s")[0]) * 1e9 - sum(call.taken_ns for call in calls)) < 1e7


def test_the_keyboard_zooms_moves_and_chooses(page: Browser) -> None:
    """Every plot can be reached with the tab key; keys zoom, move, choose and go back, and what is chosen is read out."""
    for plot in ("steps", "heat", "lanes"):
        page.run("document.querySelector(`#${arguments[0]} canvas`).focus()", plot)
        shot = "return document.querySelector(`#${arguments[0]} canvas`).toDataURL()"
        whole = page.run(shot, plot)
        page.keys("+", "+", "right")
        near = page.run(shot, plot)
        assert near != whole
        page.keys("0")
        assert page.run(shot, plot) == whole
        page.keys("down")
        first = page.run("return document.querySelector(`#${arguments[0]} .read`).textContent", plot)
        page.keys("right")
        second = page.run("return document.querySelector(`#${arguments[0]} .read`).textContent", plot)
        assert first
        assert second
        assert first != second
    reached = page.run(
        "return [...document.querySelectorAll('canvas,.stack,input,select,button,th')].filter(e => e.tabIndex < 0 && !e.closest('#files')).length"
    )
    assert reached == 0
    assert page.log() == []


def test_a_phase_with_a_control_character_stands_once(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter, the drawings and the table have the same name for it: chosen, its row is left, and its colour is a phase's."""
    monkeypatch.setitem(PHASES, "odd\x1b[2J", 2.0)
    (tmp_path / "report.html").write_text(render_html(made(2, 4)), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    options = browser.run("return [...document.querySelectorAll('#by-phase option')].map(o => o.value)")
    assert sorted(options) == sorted(["", *(name.replace("\x1b", "\\x1b") for name in PHASES)])
    browser.run(
        "const e = document.getElementById('by-phase'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))",
        "odd\\x1b[2J",
    )
    rows = "return [...document.querySelectorAll('#phases tr[data-phase]')].filter(r => r.checkVisibility()).map(r => r.querySelector('.dot').className)"
    [colour] = browser.run(rows)
    assert colour.startswith("dot c")
    assert browser.log() == []


def test_the_heat_map_finds_the_slow_rank_behind_its_waiting(run_maker: RunMaker) -> None:
    """Both ranks are in phases for all of 80 µs; rank 0 waits 40 of them in the collective for rank 1, which stands first with the
    70 that it works. In two steps: the waiting of each stands in its own."""
    for rank, updates in enumerate([(40, 20), (70, 30)]):
        key = run_maker.target(rank, host="node0")
        for step, update in enumerate(updates):
            at = 1000 * step
            reduce = complete("all_reduce", at + update, 80 - update, category="collective")
            events = [complete("update", at, update), reduce]
            run_maker.timeline(key, events, steps=(step,), end_us=80, at_us=at)
    summary = summarise(run_maker.write())
    heat = page_data(summary, summary.report())["heat"]
    assert (heat["ranks"], heat["steps"]) == (["ActorGroup/rank1", "ActorGroup/rank0"], ["0", "1"])
    layer = heat["maps"][0]
    cells = np.frombuffer(base64.b64decode(layer["cells"]), "<u2").reshape(2, 2) / 65_535 * layer["max"]
    assert np.allclose(cells, [[70_000, 30_000], [40_000, 20_000]], rtol=1e-3)


def test_the_heat_map_is_of_what_a_rank_does_itself(run_maker: RunMaker) -> None:
    """Of 100 µs rank 0 receives for 90 and has a thread that waits for all of them: it works 10. Rank 1 works 50, under a thread that
    waits too. Rank 2 has 60 of data that are slow, and 20 more in what a collective holds."""
    for rank, events in enumerate(
        [
            [complete("recv", 0, 90), complete("update", 90, 10), complete("inbox", 0, 100, tid=2, category="wait")],
            [complete("update", 0, 50), complete("inbox", 0, 100, tid=2, category="wait")],
            [
                complete("data", 0, 60, category="data"),
                complete("reduce", 60, 40, category="collective"),
                complete("pack", 70, 20),
            ],
        ]
    ):
        run_maker.timeline(run_maker.target(rank, host="node0"), events, steps=(1,), end_us=100)
    summary = summarise(run_maker.write())
    heat = page_data(summary, summary.report())["heat"]
    layer = heat["maps"][0]
    cells = np.frombuffer(base64.b64decode(layer["cells"]), "<u2") / 65_535 * layer["max"]
    assert heat["ranks"] == ["ActorGroup/rank2", "ActorGroup/rank1", "ActorGroup/rank0"]
    assert np.allclose(cells, [60_000, 50_000, 10_000], rtol=1e-3)


def test_long_names_make_no_page_wider(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase with a name of 120 characters and nothing to break at: 400 px stay 400 px."""
    monkeypatch.setitem(PHASES, "z" * 120, 4.0)
    (tmp_path / "report.html").write_text(render_html(made(2, 4)), encoding="utf-8")
    browser.size(400, 900)
    browser.open(tmp_path / "report.html")
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    browser.size(1280, 900)


def test_names_of_files_stay_apart_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """Labels of plots that differ in their middle keep it."""
    (tmp_path / "report.html").write_text(render_html(made(2, 4)), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    names = [f"ActorGroup-r{rank}-s2-w0001-vm-2057.pt.trace.json.gz" for rank in range(2)]
    cut = browser.run(
        "const c = document.createElement('canvas').getContext('2d'); return [...accelprofReport.apart(c, arguments[0], 90).values()]",
        names,
    )
    assert len(set(cut)) == 2
    assert all(f"{rank}" in text and "…" in text for rank, text in enumerate(cut))


def test_filters_by_phase_rank_and_step(page: Browser) -> None:
    """A filter leaves the rows and lanes it names, in every table and plot; one press shows all again."""
    set_ = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))"
    )
    shown = "return [...document.querySelectorAll(`#${arguments[0]} [data-rank],#${arguments[0]} tr[data-phase]`)].filter(r => r.checkVisibility()).length"
    page.run(set_, "by-rank", "rank1")
    assert page.run(shown, "bars") == 1
    page.run(set_, "by-step", "2-4")
    assert page.run(shown, "stragglers") == 1
    page.run(set_, "by-step", "99")
    assert page.run(shown, "stragglers") == 0
    page.run(set_, "by-step", "2-4")
    page.run(set_, "by-phase", "reward")
    assert page.run(shown, "phases") == 1
    assert "reward" in page.run("return document.getElementById('heat-note').textContent")
    assert page.run("return document.getElementById('heat-note').textContent").startswith("1 ranks")
    page.run("document.querySelector('#filters button').click()")
    eventually(page, "return document.getElementById('heat-note').textContent.startsWith('6 ranks')")
    assert page.run(shown, "bars") == 6
    assert page.log() == []


SET = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))"
#: what is visible of each part of the page: its rows or bars, and the notes on what they are over
SHOWN = """
const rows = (at) => [...document.querySelectorAll(at)].filter(r => r.checkVisibility());
return {
  steps: rows('#every-step thead th').slice(1).map(c => c.textContent), every: rows('#every-step tbody tr').map(r => r.dataset.phase),
  cells: rows('#every-step tbody tr:first-child td').length,
  bars: rows('#bars .bar').map(b => [b.dataset.rank, +b.lastChild.dataset.window]),
  outliers: rows('#outliers tbody tr').map(r => r.dataset.step), phases: rows('#phases tr[data-phase]').map(r => r.dataset.phase),
  waits: rows('#stragglers tbody tr').length, lanes: document.getElementById('panel').selectedOptions[0].textContent,
  memory: rows('#memory tbody tr').map(r => r.dataset.rank), note: document.getElementById('filter-note').textContent,
  over: Object.fromEntries(rows('.over').map(p => [p.closest('section').id, p.textContent])),
  lane: document.getElementById('lanes-note').textContent,
};
"""


@pytest.fixture
def filtered(browser: Browser, run_maker: RunMaker, tmp_path: Path) -> Browser:
    """A run of two ranks and six steps, five of them with a window; step 6 is the longest, in rank 1's ``update``."""
    for rank in range(2):
        key = run_maker.target(rank, host="node0")
        for step in (2, 3, 4, 6, 9):
            at, update = 10_000 * step, 500 + 100 * rank + (300 * rank if step == 6 else 0) + step
            reduce = complete("all_reduce", at + update, 1000 - update, category="collective")
            run_maker.timeline(key, [complete("update", at, update), reduce], [step], 1000 + 10 * (step == 6), at)
    figures = {"update": 0.5e-3, "checkpoint": 1e-3}
    run_maker.manifest["metrics"] = {
        "steps": [
            {"step": step, "wall_ns": 1_000_000 + 300_000_000 * (step == 12) + step,
             "seconds": {name: {"min": s, "mean": s, "max": s + (0.3 if step == 12 else 0), "slowest": "ActorGroup/rank1"} for name, s in figures.items()}}
            for step in range(2, 14)
        ]
    }  # fmt: skip
    run_maker.manifest["memory"] = [
        {"step": 2, "worker": f"ActorGroup/rank{rank}", "reserved": 5 + rank} for rank in range(2)
    ]
    summary = summarise(run_maker.write())
    (tmp_path / "page.html").write_text(render_html(summary), encoding="utf-8")
    browser.size(1280, 900)
    browser.media()
    browser.open(tmp_path / "page.html")
    return browser


def test_a_filter_by_step_reaches_every_part(filtered: Browser) -> None:
    """What is kept by step shows the chosen steps alone, with their figures; what is not says that it is over all of them."""
    before = filtered.run(SHOWN)
    assert [window for _, window in before["bars"]] == [5_010_000] * 2
    assert before["over"] == {}
    filtered.run(SET, "by-step", "6, 9")
    shown = filtered.run(SHOWN)
    assert shown["steps"] == ["step 6", "step 9"]
    assert shown["cells"] == 3
    assert [window for _, window in shown["bars"]] == [2_010_000] * 2
    assert shown["outliers"] == []
    assert shown["lanes"] == "6"
    assert shown["note"] == ""
    assert {"phases", "memory"} <= shown["over"].keys() <= {"phases", "memory", "cost", "files"}
    assert shown["over"]["phases"] == "Over all steps, whatever is chosen."
    filtered.run(SET, "by-step", "9")
    assert filtered.run(SHOWN)["lanes"] == "9"
    filtered.run(SET, "by-step", "12-3")
    shown = filtered.run(SHOWN)
    assert (shown["outliers"], shown["lanes"]) == (["12"], "9")
    filtered.run(SET, "by-step", "12")
    shown = filtered.run(SHOWN)
    assert (shown["bars"], shown["waits"], shown["lane"]) == ([], 0, "No window of step 12 is drawn here.")
    filtered.run("document.querySelector('#filters button').click()")
    eventually(filtered, "return document.getElementById('by-step').value === ''")
    assert filtered.run(SHOWN) == before
    assert filtered.log() == []


def test_waits_follow_the_steps(browser: Browser, tmp_path: Path) -> None:
    """With steps chosen a row has the waits of these alone, in the words of the whole; with all of them, what it had before."""
    summary = made(3, 9)
    rows = summary.waits.stragglers
    rows[4] = replace(rows[4], transfer_ns=None)
    rows[5] = replace(rows[5], low_ns=rows[5].waited_ns, high_ns=rows[5].waited_ns)
    (tmp_path / "page.html").write_text(render_html(summary), encoding="utf-8")
    browser.size(1280, 900)
    browser.media()
    browser.open(tmp_path / "page.html")
    cells = "return [...document.querySelectorAll('#waits tbody tr')].map(r => [...r.cells].slice(3).map(c => c.textContent.trim()))"
    whole = browser.run(cells)
    assert [whole[0][at] for at in (0, 4, 5)] == ["9", "8", "-"]
    for text, steps in (("5", [5]), ("2,6-7", [2, 6, 7]), ("3-4", [3, 4])):
        browser.run(SET, "by-step", text)
        mine = [rows[step] for step in steps]
        waited = sum(row.waited_ns for row in mine)
        [[times, _, alone, longest, step, transfer]] = browser.run(cells)
        assert (times, longest, step) == (str(len(steps)), "450 ms", str(steps[-1]))
        assert alone == shown_duration(450_000_000 * len(steps))
        assert transfer == ("-" if 4 in steps else f"{9 * len(steps)} ms")
        assert browser.run("return +document.querySelector('#waits tbody tr').cells[4].dataset.ns") == waited
        assert ("(" in browser.run(cells)[0][1]) == (steps != [5])
    browser.run(SET, "by-step", "0-8")
    assert browser.run(cells) == whole
    assert browser.log() == []


def test_filters_by_phase_and_rank_reach_every_part(filtered: Browser) -> None:
    """A phase leaves its rows in every table and also the waits in it; a rank its bars, lanes and memory."""
    filtered.run(SET, "by-phase", "update")
    shown = filtered.run(SHOWN)
    assert (shown["every"], shown["phases"], shown["waits"]) == (["update"], ["update"], 1)
    assert shown["over"]["seconds"] == shown["over"]["memory"] == "Over all phases, whatever is chosen."
    filtered.run(SET, "by-phase", "all_reduce")
    shown = filtered.run(SHOWN)
    assert (shown["every"], shown["phases"], shown["waits"]) == ([], ["all_reduce"], 1)
    filtered.run("document.querySelector('#filters button').click()")
    eventually(filtered, "return document.getElementById('by-phase').value === ''")
    filtered.run(SET, "by-rank", "RANK1")
    shown = filtered.run(SHOWN)
    assert [name for name, _ in shown["bars"]] == shown["memory"] == ["ActorGroup/rank1"]
    assert shown["over"]["steps"] == shown["over"]["every-step"] == "Over all ranks, whatever is chosen."
    assert filtered.log() == []


@pytest.mark.parametrize(
    ("which", "text", "says"),
    [
        ("by-step", "abc", "“abc” is no step: 4, 4-9 and 6,9 are; all are shown"),
        ("by-step", "4-", "“4-” is no step"),
        ("by-step", "6;9", "“6;9” is no step"),
        ("by-step", "99", "no step 99 here"),
        ("by-rank", "nosuch", "no rank has “nosuch” in its name"),
        ("by-step", " 4 - 6 , 9 ", ""),
        ("by-rank", "actor", ""),
    ],
)
def test_what_is_no_filter_is_said(filtered: Browser, which: str, text: str, says: str) -> None:
    """A step that is none leaves everything and is said; so is a step or rank that the run does not have."""
    filtered.run(SET, which, text)
    shown = filtered.run(SHOWN)
    assert shown["note"].startswith(says)
    assert bool(shown["note"]) == bool(says)
    assert (
        filtered.run("return document.getElementById('by-step').getAttribute('aria-invalid')")
        == str("is no step" in says).lower()
    )
    assert (len(shown["steps"]) == 12) == ("is no step" in says or which == "by-rank")
    assert filtered.log() == []


def test_the_lanes_open_at_the_step_of_the_first_sentence(filtered: Browser) -> None:
    """Not at the first step that has a window."""
    assert filtered.run("return document.querySelector('.first').textContent").startswith("Step 6 took ")
    assert filtered.run(SHOWN)["lanes"] == "6"


def test_hover_tells_the_call(page: Browser) -> None:
    """The pointer over a bar of a lane shows phase, rank and time; the wheel zooms once the plot has the focus."""
    page.run(
        "document.querySelector('#lanes canvas').scrollIntoView({block: 'center'}); document.querySelector('#lanes canvas').focus({preventScroll: true})"
    )
    box = page.run("const b = document.querySelector('#lanes canvas').getBoundingClientRect(); return [b.left, b.top]")
    x, y = int(box[0]) + 260, int(box[1]) + 12
    page.call(
        "POST",
        "/actions",
        {"actions": [{"type": "pointer", "id": "mouse", "actions": [{"type": "pointerMove", "x": x, "y": y}]}]},
    )
    tip = eventually(
        page, "return document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"
    )
    assert tip.startswith("rollout/generate\nActor/rank0: ")
    before = page.run("return document.querySelector('#lanes canvas').toDataURL()")
    wheel = {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": -300}
    page.call("POST", "/actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [wheel]}]})
    eventually(page, f"return document.querySelector('#lanes canvas').toDataURL() !== {before!r}")


@pytest.mark.parametrize("width", [400, 640, 1280])
def test_narrow_wide_dark_and_paper(page: Browser, width: int) -> None:
    """At 400 px nothing is wider than the page; dark is dark; paper is light, without filters, everything unfolded."""
    page.size(width, 900)
    page.run("dispatchEvent(new Event('resize'))")
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(
        "return [...document.querySelectorAll('canvas')].every(c => c.getBoundingClientRect().right <= innerWidth)"
    )
    page.media(scheme="dark")
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 21, 23)"
    page.media("print", "dark")
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("return getComputedStyle(document.getElementById('filters')).display") == "none"
    assert page.log() == []


def compared(tmp_path: Path, update_us: int, name: str) -> str:
    """A run of two ranks and four windows whose ``actor/update`` takes so long on rank 1."""
    maker = RunMaker(tmp_path / name)
    for rank in range(2):
        key = maker.target(rank)
        for step in range(1, 5):
            taken = update_us + 7 * step if rank else 300
            at = 10_000 * step
            events = [
                complete("actor/update", at, taken),
                complete("all_reduce", at + taken, 2000 - taken, category="collective"),
            ]
            maker.timeline(key, events, steps=(step,), end_us=2000, at_us=at)
    maker.manifest["memory"] = [
        {"step": step, "worker": f"ActorGroup/rank{rank}", "reserved": (1 << 20) * update_us + step}
        for step in range(1, 5)
        for rank in range(2)
    ]
    return maker.write()


def test_a_comparison_has_its_page(browser: Browser, tmp_path: Path) -> None:
    """``compare --html`` writes the page of AFTER with all measures side by side, as ``--json`` has them, the headline first; a
    stored baseline may stand before, not after."""
    before, after = compared(tmp_path, 500, "before"), compared(tmp_path, 900, "after")
    page, stored = str(tmp_path / "compare.html"), str(tmp_path / "base.json")
    done = CliRunner().invoke(compare, [before, after, "--json", "--html", page])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    browser.size(1280, 900)
    browser.media()
    browser.open(Path(page))
    assert browser.log() == []
    shown = browser.run(
        "return [...document.querySelectorAll('#comparison tr[data-measure]')].map(r => [r.dataset.measure, r.dataset.name, +r.cells[3].dataset.ns])"
    )
    expected = [[row["measure"], row["name"], row.get("delta_ns", row.get("delta_bytes"))] for row in found["changes"]]
    assert [row[:2] for row in shown] == [row[:2] for row in expected]
    assert all(abs(row[2] - right[2]) < 1 for row, right in zip(shown, expected, strict=True))
    assert {"step", "phase", "time of a window", "waiting", "critical path", "memory"} <= {row[0] for row in shown}
    first = browser.run("return document.querySelector('.first').textContent")
    assert first.startswith(f"Against {before}: actor/update on ActorGroup/rank1 takes ")
    assert "A step takes 2 ms in place of 2 ms" in first
    assert found["headline"] in first
    browser.size(400, 900)
    browser.run("dispatchEvent(new Event('resize'))")
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    assert CliRunner().invoke(compare, [before, after, "--save", stored]).exit_code == 0
    assert CliRunner().invoke(compare, [stored, after, "--html", page]).exit_code == 0
    refused = CliRunner().invoke(compare, [before, stored, "--html", page])
    assert "is a stored baseline" in str(refused.exception)


@pytest.mark.parametrize("real", ["two gpus", "cpu only"])
def test_pages_of_real_runs(browser: Browser, tmp_path: Path, shared: Path, real: str) -> None:
    """Pages of a run over NCCL and of a trace of the CPU alone complain of nothing, fit 400 px, and have the operators and waits of
    ``--json``."""
    source = Path(__file__).parent / "two_gpus" if real == "two gpus" else shared / "samples/hta/cpu_only"
    path = str(tmp_path / "report.html")
    done = CliRunner().invoke(report, [str(source), "--json", "--html", path])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    for width, scheme in ((1280, "light"), (400, "dark")):
        browser.size(width, 900)
        browser.media(scheme=scheme)
        browser.open(Path(path))
        assert browser.log() == []
        assert browser.run("return document.documentElement.scrollWidth") <= width
    rows = browser.run(
        "return [...document.querySelectorAll('#operators tr[data-phase]')].map(r => [r.dataset.phase, +r.cells[4].dataset.ns, +r.cells[5].dataset.ns])"
    )
    assert rows == [[row["phase"] or "", row["total_ns"], row["self_ns"]] for row in found["operators"][:40]]
    waited = browser.run(
        "return [...document.querySelectorAll('#stragglers tr[data-rank]')].reduce((s, r) => s + +r.cells[4].dataset.ns, 0)"
    )
    assert waited == sum(row["waited_ns"] for row in found["stragglers"])
    lines = browser.run("return [...document.querySelectorAll('.first')].map(p => p.textContent)")
    assert lines == found["first"]
    assert lines


def test_a_thousand_ranks_and_steps(browser: Browser, tmp_path: Path) -> None:
    """At 1,000 ranks × 1,000 steps the page is under 5 MB, opens in seconds, and answers a key within a quarter of one."""
    text = render_html(made(1000, 1000, calls=False))
    assert len(text.encode()) < 5_000_000
    path = tmp_path / "large.html"
    path.write_text(text, encoding="utf-8")
    browser.size(1280, 900)
    browser.media()
    began = time.monotonic()
    browser.open(path)
    assert time.monotonic() - began < 20
    assert browser.run("return document.querySelectorAll('#bars .bar').length") == 32
    assert browser.run("return document.querySelector('#bars .bar:last-child').dataset.rank") == "969 others"
    waited = browser.run(
        "return [...document.querySelectorAll('#stragglers tbody tr')].map(r => r.cells[3].textContent)"
    )
    assert waited == ["1,000"]  # one row for the thousand waits of one kind
    browser.run("document.querySelector('#heat canvas').focus()")
    taken = browser.run(
        "const c = document.querySelector('#heat canvas'), times = [];"
        "for (const key of ['+', 'ArrowRight', '-', 'ArrowDown', '0']) { const t = performance.now();"
        "c.dispatchEvent(new KeyboardEvent('keydown', {key})); times.push(performance.now() - t); } return times"
    )
    assert sorted(taken)[len(taken) // 2] < 250
    assert browser.log() == []


def test_pictures_for_the_documentation(browser: Browser, tmp_path: Path) -> None:
    """The page's pictures are made here, down to the lanes: light, dark and narrow. Those in the documentation are of the run whose
    directory ``ACCELPROF_WRITE_IMAGES`` is, one of the demo."""
    run = os.environ.get("ACCELPROF_WRITE_IMAGES")
    if run:
        page, folder = Path(run) / "report.html", IMAGES
    else:
        page, folder = tmp_path / "report.html", tmp_path
        page.write_text(render_html(made(8, 24, odd="")), encoding="utf-8")
    browser.open(page)
    sizes = []
    for name, width, scheme in (
        ("report", 1280, "light"),
        ("report-dark", 1280, "dark"),
        ("report-narrow", 400, "light"),
    ):
        browser.size(width, 900)
        browser.media(scheme=scheme)
        browser.run("dispatchEvent(new Event('resize'))")
        picture = browser.picture(folder / f"{name}.png", above="#off-path, #phases")
        assert picture.startswith(b"\x89PNG")
        sizes.append(int.from_bytes(picture[16:20], "big"))
    assert sizes == [1280, 1280, 400]


@pytest.mark.parametrize("ranks", [3, 32, 33, 60])
def test_bars_have_their_parts_in_each_step(ranks: int) -> None:
    """The parts of a bar in each step add up to its own, also of the bar that sums the ranks beyond the others; where there are too
    many, or a window whose steps nobody knows, there are none."""
    rng = random.Random(ranks)
    summary = made(ranks, 4)
    windows = [WindowRow(f"w{rank}-{step}", "k", [step]) for rank in range(ranks) for step in range(4)]
    summary.run.manifest.windows.update({row.id: row for row in windows})
    rows = []
    for rank in range(ranks):
        for step in range(4):
            parts = {part: rng.randrange(1000) for part in PARTS}
            rows.append(Second(f"Actor/rank{rank}", f"w{rank}-{step}", None, sum(parts.values()), parts))
    summary.seconds = rows
    found = page_data(summary, summary.report())["seconds"]
    assert found["steps"] == ["0", "1", "2", "3"]
    assert len(found["rows"]) == min(ranks, 32)
    for at, step in enumerate(found["steps"]):
        everything = [sum(row["by"][at][part] for row in found["rows"]) for part in range(len(PARTS))]
        mine = [row for row in rows if row.window.endswith(f"-{step}")]
        assert everything == [sum(row.parts[part] for row in mine) for part in PARTS]
    assert all([sum(part) for part in zip(*row["by"])] == row["ns"] for row in found["rows"])
    rows[0].window = "nobody's"
    assert page_data(summary, summary.report())["seconds"]["steps"] == []


def test_what_was_not_delivered_is_said_once(browser: Browser, tmp_path: Path) -> None:
    """A manifest's problems say what is lacking too: the page has it under "Not delivered" alone, and what else went wrong under "Problems"."""
    summary = made(2, 2)
    lack = Lack(code="never_opened", words="windows for steps 9 never opened")
    summary.lacks.append(lack)
    summary.problems.append(lack.words)
    (tmp_path / "page.html").write_text(render_html(summary))
    browser.open(tmp_path / "page.html")
    lists = browser.run("return [...document.querySelectorAll('details ul')].map((list) => list.textContent)")
    assert [text.count(lack.words) for text in lists] == [1, 0]
