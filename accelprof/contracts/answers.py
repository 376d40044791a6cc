"""What plug-ins answer, looked at once where it is first used: a wrong answer is named with who gave it and what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from accelprof.contracts.backend import NO_RANGE, Backend, BoundRange, Emitter, Probe, RangeSpec
from accelprof.contracts.targets import ArtifactFile
from accelprof.contracts.tool import Tool
from accelprof.errors import PluginError, failures, text_of


class Probed(Protocol):
    """A backend or a tool."""

    def probe(self) -> Probe: ...


def probe_of(thing: Probed) -> Probe:
    """What ``thing.probe()`` says; one that raises, or answers something else, is unavailable with that as the reason."""
    try:
        answer: object = thing.probe()
    except failures() as error:  # kept as the reason
        return Probe(None, f"unavailable: {text_of(error)}")
    if not isinstance(answer, Probe):
        return Probe(
            None, f"unavailable: probe() returned {_kind(answer)}; accelprof.contracts.backend.Probe is expected"
        )
    priority: object = answer.priority
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, (int, float))):
        return Probe(None, f"unavailable: probe() has priority {priority!r}; a number, or None, is expected")
    reason: object = answer.reason
    if not isinstance(reason, str):
        return Probe(None, f"unavailable: probe() has reason {reason!r}; one line of text is expected")
    facts: object = answer.facts
    if not isinstance(facts, Mapping):
        return Probe(None, f"unavailable: probe() has facts {facts!r}; a mapping is expected")
    return answer


def bound_of(emitter: Emitter, spec: RangeSpec) -> BoundRange:
    """``emitter.bind(spec)``.

    Raises:
        PluginError: it raises, or is no :class:`~accelprof.contracts.backend.BoundRange` of four callables.
    """
    try:
        bound: object = emitter.bind(spec)
    except failures() as error:
        raise PluginError(f"bind() of {named(emitter)} failed: {text_of(error)}") from error
    if bound is NO_RANGE:
        return NO_RANGE
    if not isinstance(bound, BoundRange):
        raise PluginError(
            f"bind() of {named(emitter)} returned {_kind(bound)}; accelprof.contracts.backend.BoundRange(push, pop, start, end) is expected"
        )
    for field, part in zip(bound._fields, bound, strict=True):
        if not callable(part):
            raise PluginError(f"bind() of {named(emitter)} has {part!r} for {field}; a callable is expected")
    return bound


def files_of(answer: object, call: str) -> list[ArtifactFile]:
    """What a tool's ``close``, ``finalise`` or ``stop`` left.

    Raises:
        PluginError: it is no list of :class:`~accelprof.contracts.targets.ArtifactFile`, or a field of one is of another type.
    """
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise PluginError(
            f"{call} returned {_kind(answer)}; a list of accelprof.contracts.targets.ArtifactFile is expected"
        )
    files: list[ArtifactFile] = []
    for file in answer:
        if not isinstance(file, ArtifactFile):
            raise PluginError(
                f"{call} returned a list with {_kind(file)}; accelprof.contracts.targets.ArtifactFile is expected"
            )
        windows: object = file.windows
        whole = isinstance(windows, (tuple, list)) and all(isinstance(window, str) for window in windows)
        right = {"path": isinstance(file.path, str), "tool": isinstance(file.tool, str), "windows": whole}
        right["bytes"] = isinstance(file.bytes, int)
        for field, fits in right.items():
            if not fits:
                raise PluginError(f"{call} returned an ArtifactFile with {field} {getattr(file, field)!r}")
        files.append(file)
    return files


def emitter_of(tool: Tool, backend: Backend) -> Emitter:
    """``tool.emitter(backend)``.

    Raises:
        PluginError: it is no :class:`~accelprof.contracts.backend.Emitter`.
    """
    emitter: object = tool.emitter(backend)
    if not isinstance(emitter, Emitter):
        raise PluginError(
            f"emitter() of tool {tool.name} returned {_kind(emitter)}; an accelprof.contracts.backend.Emitter is expected"
        )
    return emitter


def named(emitter: Emitter) -> str:
    """``backend xpu`` or the emitter's class, for messages."""
    return f"backend {emitter.name}" if isinstance(emitter, Backend) else type(emitter).__name__


def _kind(answer: object) -> str:
    return "nothing" if answer is None else f"a {type(answer).__name__}"
