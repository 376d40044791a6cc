"""The contract of a dialect: somebody else's configuration, translated once into ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Note:
    """What a translation wants said about one key.

    Attributes:
        path: the key's whole path in the source file (or in ours, for ``info``).
        kind: ``dropped`` | ``changed`` | ``doubtful`` | ``info``; ``off``: because of this key the file profiles nothing, and the
            text says what would.
        text: one line for people.
    """

    path: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text} [{self.kind}]"


@dataclass(frozen=True, slots=True)
class Translation:
    """A mapping in accelprof's own dialect, with where each key came from.

    Attributes:
        config: what ``Config.model_validate`` takes.
        notes: per key, what was dropped, changed or doubtful.
        sources: path in ``config`` (dots) -> path in the source.
        generation: which generation of the dialect was recognised, empty where there is one only.
    """

    config: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    generation: str = ""


class Dialect:
    """Base of dialects; ``name`` is what ``config check`` prints."""

    name: ClassVar[str] = ""
    #: the keys that :meth:`detects` looks for, for people
    known_by: ClassVar[str] = ""

    def detects(self, mapping: Mapping[str, object]) -> bool:
        """Whether ``mapping`` is written in this dialect, by its keys alone."""
        raise NotImplementedError

    def knows(self, path: str, mapping: Mapping[str, object]) -> bool:
        """Whether an override may set ``path`` (dots) in ``mapping``, which does not have it; by default it may."""
        return True

    def own_word(self, word: str, value: object, mapping: Mapping[str, object]) -> str:
        """The path at which ``mapping`` itself says what our ``word`` says, where other keys of it hang on that; else empty."""
        return ""

    def hint(self, mapping: Mapping[str, object]) -> str:
        """What ``mapping`` is when it is a part of this dialect's files and no file of its own; empty when it is none."""
        return ""

    def translate(self, mapping: Mapping[str, object]) -> Translation:
        """Translate.

        Raises:
            ConfigError: values are refused; paths are those of the source.
        """
        raise NotImplementedError
