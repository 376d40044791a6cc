"""Tool torch_memory where writing fails; the allocator is a stand-in, since device allocators alone keep a history."""

from __future__ import annotations

import pickle

import pytest

from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.tool import ToolContext
from accelprof.tools.torch_memory import TorchMemoryTool


class Memory:
    """``torch.cuda.memory`` as far as the tool uses it."""

    def __init__(self):
        self.answer = {"segments": [1], "device_traces": [[1]]}
        self.history = None

    def _snapshot(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _record_memory_history(self, enabled, **_):
        self.history = enabled


@pytest.fixture
def told():
    return []


@pytest.fixture
def tool(told, monkeypatch):
    made = TorchMemoryTool()
    made.context = ToolContext(None, None, None, "", told.append)
    made._memory = Memory()
    monkeypatch.setattr(made, "_observe_out_of_memory", lambda: None)
    monkeypatch.setattr("accelprof.tools.torch_memory.history_is_on", lambda: made._memory.history is not None)
    return made


@pytest.fixture
def window(tmp_path):
    def make(number):
        return WindowInfo(
            id=f"w{number}",
            sequence=number,
            steps=(number,),
            phase=None,
            kind="step",
            stem=str(tmp_path / f"w{number}"),
        )

    return make


def test_the_users_own_history_goes_on(tool, window, told, monkeypatch):
    """One that was on before the window is neither replaced nor ended, and it is said; the next window records again."""
    monkeypatch.setattr("accelprof.tools.torch_memory.history_is_on", lambda: tool._memory.history is not None)
    tool._memory._record_memory_history("theirs")
    tool.open(window(1))
    assert tool._memory.history == "theirs"
    (file,) = tool.close(window(1))
    assert tool._memory.history == "theirs"
    assert (file.state, file.windows) == ("complete", ("w1",))
    assert len(told) == 1
    tool._memory._record_memory_history(None)
    tool.open(window(2))
    assert tool._memory.history == "all"
    tool.close(window(2))
    assert tool._memory.history is None


def test_a_snapshot_that_raises_at_the_stop(tool, window, tmp_path):
    """B80: history is off, no file of no bytes is left, and the next window is whole."""
    right, tool._memory.answer = tool._memory.answer, ValueError("stoi")
    tool.open(window(1))
    with pytest.raises(ValueError, match="stoi"):
        tool.close(window(1))
    assert tool._memory.history is None
    assert list(tmp_path.iterdir()) == []
    tool._memory.answer = right
    tool.open(window(2))
    (file,) = tool.close(window(2))
    with open(file.path, "rb") as written:
        assert pickle.load(written) == right


def test_whether_a_history_is_on_is_torchs_own_word():
    """On a machine without a device torch answers, too."""
    pytest.importorskip("torch")
    from accelprof.tools.torch_memory import history_is_on

    assert history_is_on() is False


def test_an_observer_that_fails_does_not_replace_the_error(tool, window, told):
    """The observer runs inside torch's allocation: whatever the snapshot raises is reported and not raised there."""
    tool.open(window(1))
    tool._memory.answer = RuntimeError("no history here")
    tool._out_of_memory(0, 1, 1, 0)
    assert len(told) == 1
    assert "RuntimeError: no history here" in told[0]


def test_a_write_that_fails_leaves_no_part(tool, window, tmp_path):
    """What cannot be written whole is not left behind, and recording ends all the same."""
    tool.open(window(1))
    tool._memory.answer = {"segments": [lambda: None]}  # cannot be pickled
    with pytest.raises((pickle.PicklingError, AttributeError)):
        tool.close(window(1))
    assert list(tmp_path.iterdir()) == []
    assert tool._memory.history is None


@pytest.mark.parametrize("then", ["another window", "the end"])
def test_snapshots_of_out_of_memory_errors_are_handed_out(tool, window, then):
    """They come even when the window's own snapshot fails: with the next window's, or when the session closes."""
    tool.open(window(1))
    tool._out_of_memory(0, 1, 1, 0)
    right, tool._memory.answer = tool._memory.answer, RuntimeError("device lost")
    with pytest.raises(RuntimeError):
        tool.close(window(1))
    tool._memory.answer = right
    files: list[ArtifactFile] = []
    if then == "another window":
        tool.open(window(2))
        files += tool.close(window(2))
    files += tool.finalise("end")
    handed = [file for file in files if "-oom" in file.path]
    assert [file.windows for file in handed] == [("w1",)]
    assert tool.finalise("end") == []
