"""The flight recorder's file: the last steps, readable whenever the process ends, and never trusted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from accelprof.errors import ReadError
from accelprof.output import ring as module
from accelprof.output.ring import HEAD, Ring, read_ring
from accelprof.processes import Writer

WHO = {"group": "G", "rank": 3, "key": "G-r3"}


def rows(step, count=3):
    return [(n % 2, "phase", step * 1000 + n, step * 1000 + n + 1, 77) for n in range(count)]


def test_what_was_written_is_read_back(tmp_path):
    """Names, finished steps in order and the running step come back, with the offset to the epoch's clock."""
    ring = Ring(str(tmp_path / "a.ring"), WHO)
    assert ring.name("actor/update", "model", "red", "collective")
    assert ring.name("naïve \n label", "", "", "")
    for step in (5, 6):
        ring.add(step, step * 1000, step * 1000 + 500, rows(step))
    ring.now(7, 7000, rows(7, 1))
    found = read_ring(ring.path)
    assert found.who == WHO
    assert found.phases == [("actor/update", "model", "red", "collective"), ("naïve \n label", "", "", "")]
    assert [(s.step, s.begin_ns, s.end_ns, [tuple(r) for r in s.rows]) for s in found.steps] == [
        (step, step * 1000, step * 1000 + 500, rows(step)) for step in (5, 6)
    ]
    assert found.running is not None
    assert (found.running.step, found.running.end_ns, len(found.running.rows)) == (7, None, 1)
    ring.idle()
    assert read_ring(ring.path).running is None
    assert found.problems == []
    ring.close()


def test_a_step_that_has_ended_since_it_was_written_down_does_not_run(tmp_path):
    """The running step is written down now and then: where that one, or a later one, is there with its end, none runs that is known.
    What is written down after the last end does."""
    ring = Ring(str(tmp_path / "a.ring"), WHO)
    ring.now(7, 700, rows(1, 700))
    ring.add(7, 700, 800, rows(2, 700))
    assert read_ring(ring.path).running is None
    ring.add(8, 800, 900, rows(2, 800))
    found = read_ring(ring.path)
    assert ([record.step for record in found.steps], found.running) == ([7, 8], None)
    ring.now(None, 900, rows(1, 900))
    assert read_ring(ring.path).running.begin_ns == 900
    ring.now(7, 910, rows(1, 910))  # a number once more
    assert read_ring(ring.path).running.step == 7
    ring.close()


def test_what_is_read_while_it_is_written_is_whole(tmp_path):
    """A reader in another thread: no record is called damaged or cut that is not, no phase lacks its name, steps follow one another."""
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=1 << 17)
    done = threading.Event()

    def write():
        step = 0
        while not done.is_set():
            step += 1
            if not step % 500:
                ring.name(f"phase {step}", "", "", "")
            ring.add(step, step * 100, step * 100 + 90, rows(step, step % 40 + 1))
            if not step % 20:
                time.sleep(0.0002)  # the whole ring is not written anew while it is read once

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            found = read_ring(ring.path)
            assert found.problems == []
            numbers = [record.step for record in found.steps]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            assert all(len(record.rows) == record.step % 40 + 1 for record in found.steps)
            seen.update(numbers[-1:])
    finally:
        done.set()
        writer.join()
    assert len(seen) > 5
    ring.close()


def test_the_oldest_steps_give_way_and_the_file_does_not_grow(tmp_path):
    """Against a list: whatever the sizes of steps, the ring holds the latest ones, unbroken, in a file of fixed size."""
    draw = random.Random(7)
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=10_000)
    size = os.path.getsize(ring.path)
    written = []
    for step in range(700):
        part = rows(step, draw.randrange(60))
        ring.add(step, step, step + 1, part)
        written.append((step, part))
        if step % 37 == 0:
            found = [(s.step, [tuple(r) for r in s.rows]) for s in read_ring(ring.path).steps]
            assert found == written[-len(found) :]
            assert len(found) >= min(len(written), 5)
    assert os.path.getsize(ring.path) == size
    ring.close()


def test_steps_behind_the_last_named_end_are_found_and_those_of_a_round_before_are_not(tmp_path):
    """The head's end moves now and then: what was written since is read all the same, a damaged one is said, and nothing old counts."""
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=10_000)
    for step in range(400):  # all of one length, so that each stands where one stood a round before
        ring.add(1000 + step, 10**9 + step, 10**9 + step + 1, rows(1, 3))
        head = ring._map[module._ENDS_AT : module._ENDS_END]
        found = read_ring(ring.path)
        assert [s.step for s in found.steps] == list(range(1000 + step - len(found.steps) + 1, 1001 + step))
        assert found.problems == []
        if module._ENDS.unpack(head)[1] < ring._end - 200:
            place = ring._base + (ring._end - 150) % 10_000
            kept = ring._map[place]
            ring._map[place] = kept ^ 1
            assert read_ring(ring.path).problems == ["a step's record is damaged, it is left out"]
            ring._map[place] = kept
    ring.close()


def test_room_is_made_in_small_pieces(tmp_path):
    """However long it runs, all but a few hundredths of the ring hold steps: the oldest give way a piece at a time."""
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=100_000)
    for step in range(5000):
        ring.add(step, step, step + 1, rows(step, 5))
        if step > 2500 and not step % 100:
            length = (ring._end - ring._first) / len(read_ring(ring.path).steps)
            assert ring._end - ring._first >= 100_000 * (1 - 2 / module.PIECES) - length
    ring.close()


def test_a_step_too_large_is_cut_and_says_how_much(tmp_path):
    """A step that would push all others out keeps its first rows, and the number that was left out."""
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=10_000)
    ring.add(1, 0, 1, rows(1, 5000))
    (step,) = read_ring(ring.path).steps
    assert 0 < len(step.rows) < 5000
    assert len(step.rows) + step.cut == 5000
    ring.now(2, 1, rows(2, 50_000))
    running = read_ring(ring.path).running
    assert running is not None
    assert len(running.rows) + running.cut == 50_000
    assert tuple(running.rows[-1]) == rows(2, 50_000)[-1]  # of a running step the latest matter
    ring.close()


def test_a_killed_process_leaves_a_readable_ring(tmp_path):
    """SIGKILL at fifty random moments: every record that is there is whole, and they are the latest, in order."""
    code = """
        import os, random, signal, sys, time
        from accelprof.output.ring import Ring
        draw = random.Random(16)
        for number in range(50):
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                ring = Ring(f"{sys.argv[1]}/{number}.ring", {"pid": 1}, size=20_000)
                ring.name("p", "", "", "")
                step = 0
                while True:
                    if step == 100:
                        os.write(write, b"g")
                    ring.add(step, step, step + 1, [(0, "phase", step, step + 1, 5)] * (step % 40))
                    ring.now(step + 1, step + 1, [(0, "phase", step, step + 1, 5)] * (step % 7))
                    step += 1
            os.read(read, 1)
            time.sleep(draw.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read), os.close(write)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True, timeout=100)
    in_a_step = 0
    for number in range(50):
        found = read_ring(tmp_path / f"{number}.ring")
        steps = [s.step for s in found.steps]
        assert found.problems == []
        assert steps == list(range(steps[0], steps[-1] + 1))
        assert all(len(s.rows) == s.step % 40 for s in found.steps)
        if found.running is not None:  # else killed between the end of a step and the beginning of the next
            assert found.running.step == steps[-1] + 1
            in_a_step += 1
    assert in_a_step


def test_a_file_that_somebody_cut_ends_nobody(tmp_path):
    """Memory of a file that was cut or replaced is written to no more, which would be SIGBUS: said once, and the process goes on."""
    code = """
        import os, sys
        from accelprof.output.ring import LOOK_NS, Ring
        for how in ("cut", "removed", "replaced"):
            path = f"{sys.argv[1]}/{how}.ring"
            ring = Ring(path, {}, size=20_000)
            rows = [(0, "phase", 1, 2, 5)] * 50
            ring.add(1, 1, 10 * LOOK_NS, rows)
            if how == "cut":
                os.truncate(path, 0)
            else:
                os.unlink(path)
            if how == "replaced":
                open(path, "w").close()
            said = []
            for step in range(2, 200):
                for write in (lambda: ring.add(step, step, step * 10 * LOOK_NS, rows), lambda: ring.now(step, step, rows), ring.idle,
                              lambda: ring.name("p", "", "", "")):
                    try:
                        write()
                    except OSError as error:
                        said.append(str(error))
            ring.remove()
            ring.close()
            print(how, len(said), ring.lost, os.path.exists(path), said[0])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cut, removed, replaced = done.stdout.splitlines()
    assert cut.startswith("cut 1 True True")
    assert "somebody changed its size" in cut
    assert removed.startswith("removed 1 True False")
    assert replaced.startswith("replaced 1 True True")
    assert "another file has its name" in replaced


def test_a_ring_of_a_killed_process_of_the_same_name_is_put_aside(tmp_path):
    """In a container a worker that is started again has the same number: it gets its recorder, and the old steps stay readable."""
    path = tmp_path / "a.ring"
    for step in (1, 2):
        ring = Ring(str(path), WHO)
        ring.add(step, step, step + 1, rows(step))
        ring.close()
    assert [s.step for s in read_ring(path).steps] == [2]
    (old,) = tmp_path.glob("a.ring.*")
    assert [s.step for s in read_ring(old).steps] == [1]
    assert path.stat().st_mode & 0o222 == 0


def test_no_damage_ends_the_reader(tmp_path):
    """Any bytes changed, any cut: what is left is read, or refused as a ReadError; numbers of a damaged record do not count."""
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=10_000)
    ring.name("p", "", "", "")
    for step in range(50):
        ring.add(step, step, step + 1, rows(step))
    ring.now(50, 50, rows(50))
    ring.close()
    good = (tmp_path / "a.ring").read_bytes()
    draw, whole = random.Random(11), {tuple(map(tuple, rows(step))) for step in range(51)}
    for _ in range(400):
        data = bytearray(good)
        for _ in range(draw.choice((1, 3, 200))):
            place = draw.choice((draw.randrange(HEAD // 40), draw.randrange(len(data))))
            data[place] = draw.randrange(256)
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        (tmp_path / "b.ring").write_bytes(bytes(data))
        try:
            found = read_ring(tmp_path / "b.ring")
        except ReadError:
            continue
        assert all(tuple(map(tuple, s.rows)) in whole for s in found.steps)


@pytest.mark.parametrize("what", ["absent", "directory", "empty", "text"])
def test_what_is_no_ring_is_refused(tmp_path, what):
    """A path that is no ring is refused with its name."""
    path = tmp_path / "x.ring"
    if what == "directory":
        path.mkdir()
    elif what != "absent":
        path.write_text("" if what == "empty" else "hello" * 2000)
    with pytest.raises(ReadError, match="x.ring"):
        read_ring(path)


@pytest.mark.parametrize(
    "who",
    ['{"pid": 1e999}', '{"pid": -1}', '{"pid": null}', '{"pid": "1/../1"}', '{"pid": [1]}', "[]", "{", '{"pid": 1.5}'],
)
def test_whether_its_process_is_there_ends_no_report(tmp_path, who):
    """Whatever stands in the head of a ring."""
    path = tmp_path / "x.ring"
    text = who.replace("{", f'{{"host": "{os.uname().nodename}", ', 1).encode()
    head = module._HEAD.pack(module.MAGIC, module.VERSION, 0, 0, 0, 0, 0, 0, 0, 0, len(text)) + text
    path.write_bytes(head.ljust(HEAD, b"\0"))
    assert module.is_written(path) is None


def test_a_ring_is_of_its_process_and_not_of_the_next_with_its_number(tmp_path, monkeypatch):
    """A worker that a container starts again has the number of the one that was killed."""
    me = Writer.me()
    Ring(str(tmp_path / "mine.ring"), WHO).close()
    monkeypatch.setattr(Writer, "me", lambda: Writer(me.host, me.pid, "1", me.space))
    Ring(str(tmp_path / "earlier.ring"), WHO).close()
    assert module.is_written(tmp_path / "mine.ring") is True
    assert module.is_written(tmp_path / "earlier.ring") is False
    assert read_ring(tmp_path / "mine.ring").who == WHO


def test_names_end_when_their_room_does(tmp_path, monkeypatch):
    """No more room for names is answered, not written past."""
    monkeypatch.setattr(module, "NAMES", 100)
    ring = Ring(str(tmp_path / "a.ring"), WHO, size=10_000)
    answers = [ring.name(f"phase {n}", "", "", "") for n in range(10)]
    assert True in answers
    assert answers[-1] is False
    assert len(read_ring(ring.path).phases) == answers.count(True)
    ring.close()
