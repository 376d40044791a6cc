"""How dialects read a foreign file: by path, with types checked, interpolations resolved, and everything found wrong kept."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from accelprof.config.dialect import Note, Translation
from accelprof.config.dialects.interpolation import MISSING, InterpolationError, Resolver
from accelprof.errors import ConfigError, Problem, nearest, nearest_word
from accelprof.numberset import NumberSet

_ABSENT: object = object()
#: how like two words are that differ in a letter or two
SAME_WORD = 0.85


class Source:
    """A foreign configuration: values by dotted path; problems and notes are collected and said together.

    Interpolations (``${oc.select:a.b,default}``) are resolved where they are read, as Hydra would, and only there: the
    rest of a large file may use resolvers that exist in its framework alone.
    """

    def __init__(self, mapping: Mapping[str, object]) -> None:
        self.mapping = mapping
        self.problems: list[Problem] = []
        self.notes: list[Note] = []
        self._omega: object = None
        self._resolved: dict[str, object] = {}

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, path: str, default: object = None) -> Any:
        """The value at ``path``, resolved; ``default`` where the file has none or ``null``."""
        here = self._at(path)
        if isinstance(here, str) and here == MISSING:
            self.refuse(path, "must be given", value=here)
            return default
        if here is not _ABSENT and _interpolates(here):
            here = self._resolve(path, here)
        return default if here is None or here is _ABSENT else here

    def known(self, path: str) -> Any:
        """As :meth:`get`, of a value that only a remark depends on: ``None`` also where the file leaves it to be filled in."""
        return None if self._at(path) == MISSING else self.get(path)

    def section(self, path: str) -> Mapping[str, object]:
        """The mapping at ``path`` with its values as they are written; empty where there is none."""
        here = self._at(path)
        if isinstance(here, str) and _interpolates(here):
            here = self._resolve(path, here)
        return here if isinstance(here, Mapping) else {}

    def _at(self, path: str) -> Any:
        """What stands at ``path``; mappings on the way there may be interpolations themselves."""
        here: Any = self.mapping
        parts = path.split(".")
        for at, part in enumerate(parts):
            if at and isinstance(here, str) and _interpolates(here):
                here = self._resolve(path, here)  # of what it stands for, this alone
                return _ABSENT if here is None else here
            if not isinstance(here, Mapping) or part not in here:
                return _ABSENT
            here = here[part]
        return here

    def has(self, path: str) -> bool:
        """Whether the file has a value other than ``null`` there."""
        return self.get(path, _ABSENT) is not _ABSENT

    def mapping_at(self, path: str) -> Mapping[str, object]:
        """The mapping at ``path``, empty where there is none; anything else is refused."""
        value = self.get(path, {})
        if not isinstance(value, Mapping):
            self.refuse(path, f"a {type(value).__name__} where a mapping is expected", value=value)
            return {}
        return value

    def flag(self, path: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.get(path, default)
        if not isinstance(value, bool):
            self.refuse(path, "not a truth value", value=value, allowed="true, false")
            return default
        return value

    def text(self, path: str, default: str | None = None) -> str | None:
        """A text."""
        value = self.get(path, default)
        if value is not None and not isinstance(value, str):
            self.refuse(path, f"a {type(value).__name__} where a text is expected", value=value)
            return default
        return value

    def number(self, path: str, default: int | None = None, minimum: int = 0) -> int | None:
        """A whole number, at least ``minimum``."""
        value = self.get(path, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.refuse(path, "not a whole number in range", value=value, allowed=f"whole numbers >= {minimum}")
            return default
        return value

    def numbers(self, path: str) -> list[int] | None:
        """A list of whole numbers, sorted, each once; ``None`` where absent. Texts and single numbers are refused with the mend."""
        value = self.get(path)
        if value is None:
            return None
        allowed = "a list of whole numbers >= 0, or null"
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            try:
                mend = f"[{', '.join(map(str, islice(NumberSet.parse(value), 12)))}]"
            except ValueError:
                mend = "[0]"
            self.refuse(
                path, f"a {type(value).__name__} where a list is expected", value=value, allowed=allowed, mend=mend
            )
            return None
        if isinstance(value, Mapping) or not isinstance(value, Iterable) or isinstance(value, bytes):
            self.refuse(path, f"a {type(value).__name__} where a list is expected", value=value, allowed=allowed)
            return None
        items = list(value)
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or item < 0:
                self.refuse(path, f"{item!r} is not a whole number >= 0", value=items, allowed=allowed)
                return None
        return sorted(set(items))

    def words(self, path: str) -> list[str] | None:
        """A list of texts, or one text; ``None`` where absent."""
        value = self.get(path)
        if value is None:
            return None
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
            self.refuse(path, "not a name or a list of names", value=value)
            return None
        return list(items)

    def choice(self, path: str, allowed: Sequence[str], default: str | None = None) -> str | None:
        """One of ``allowed``; the nearest is named otherwise."""
        value = self.get(path, default)
        if value is None or (isinstance(value, str) and value in allowed):
            return value
        self.refuse(
            path,
            "not one of the allowed values",
            value=value,
            allowed=", ".join(allowed),
            mend=nearest(str(value), allowed),
        )
        return default

    # --- saying -----------------------------------------------------------------------------------------------------

    def refuse(self, path: str, message: str, **more: Any) -> None:
        """Keep a problem; :meth:`finish` raises all of them."""
        self._refuse(Problem(path, message, **more))

    def _refuse(self, problem: Problem) -> None:
        if str(problem) not in {str(known) for known in self.problems}:
            self.problems.append(problem)

    def note(self, path: str, kind: str, text: str) -> None:
        """Say something about a key: ``dropped``, ``changed``, ``doubtful`` or ``info``."""
        note = Note(path, kind, text)
        if note not in self.notes:
            self.notes.append(note)

    def check_keys(
        self, path: str, known: Iterable[str], hints: Mapping[str, str] | None = None, open_to_others: bool = False
    ) -> None:
        """Refuse keys of the mapping at ``path`` that are not ``known``; ``hints`` says of some where they belong.

        ``open_to_others``: a key that is like none of the known ones is somebody else's and gets a note, unless the
        section names the class that is made of it.
        """
        section = self.mapping_at(path)
        shown = list(known)
        for key in section:
            if key in shown or key == "_target_":
                continue
            plain = re.sub(r"^profiler?_", "", str(key))  # guides and people write profile_level, profiler_contents
            mend = (hints or {}).get(key, "") or nearest(key, shown) or nearest(plain, shown)
            if open_to_others and not mend and "_target_" not in section:
                self.note(f"{path}.{key}", "dropped", "no key of this section; whoever put it there reads it")
                continue
            unknown = Problem.unknown_key(
                f"{path}.{key}", value=section[key], allowed=", ".join(shown), mend=mend or "remove it"
            )
            self._refuse(unknown)

    def check_spelling(self, path: str, known: Iterable[str], others: Iterable[str] = ()) -> None:
        """Refuse keys at ``path``, where most belong to somebody else, that are all but one of the ``known``."""
        words = list(known)
        for key in self.section(path) if path else self.mapping:
            near = nearest_word(str(key), words, SAME_WORD)
            if near and key not in words and key not in others:
                where = f"{path}.{key}" if path else str(key)
                self._refuse(Problem.unknown_key(where, mend=f"did you mean {near!r}?"))

    def finish(self, draft: Draft, generation: str = "") -> Translation:
        """The translation.

        Raises:
            ConfigError: everything that was refused.
        """
        if self.problems:
            raise ConfigError(*self.problems)
        return Translation(draft.config, tuple(self.notes), dict(draft.sources), generation)

    # --- interpolations -----------------------------------------------------------------------------------------------

    def _resolve(self, path: str, value: object) -> object:
        """The value at ``path`` as Hydra would have it: by OmegaConf where it is installed, by our own resolver otherwise."""
        if path not in self._resolved:
            try:
                self._resolved[path] = self._select(path)
            except UnresolvedError as error:
                self.refuse(
                    path,
                    f"the interpolation cannot be resolved: {error}",
                    value=value if isinstance(value, str) else "",
                    mend="give the composed file (python main.py --cfg job --resolve)",
                )
                self._resolved[path] = None
        return self._resolved[path]

    def _select(self, path: str) -> object:
        try:
            from omegaconf import OmegaConf
            from omegaconf.errors import OmegaConfBaseException
        except ImportError:
            return self._select_without(path)
        if self._omega is None:
            try:
                self._omega = OmegaConf.create(_plain(self.mapping))
            except OmegaConfBaseException:  # somewhere in the file stands what it cannot even read
                return self._select_without(path)
        # Hydra registers this one when it starts; a file that is only looked at needs it all the same
        ours = not OmegaConf.has_resolver("now")
        if ours:
            # renamed in 2.4
            register = getattr(OmegaConf, "register_resolver", None) or OmegaConf.register_new_resolver
            register("now", lambda pattern: datetime.datetime.now().strftime(pattern))
        try:
            found = OmegaConf.select(self._omega, path)
            if OmegaConf.is_config(found):
                return OmegaConf.to_container(found, resolve=True, throw_on_missing=False)
            return found
        except OmegaConfBaseException as error:
            raise UnresolvedError(str(error).splitlines()[0]) from None
        finally:
            if ours:
                OmegaConf.clear_resolver("now")

    def _select_without(self, path: str) -> object:
        try:
            return Resolver(self.mapping).node(tuple(path.split(".")))
        except InterpolationError as error:
            raise UnresolvedError(str(error)) from None


class UnresolvedError(Exception):
    """An interpolation has no value; the text says why."""


class Draft:
    """A configuration of ours as it grows, with where each key came from."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def set(self, path: str, value: object, source: str = "") -> None:
        """Set ``a.b[0].c``; lists grow as needed."""
        here: Any = self.config
        parts = re.findall(r"[^.\[\]]+|\[\d+\]", path)
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            key: object = int(part[1:-1]) if part.startswith("[") else part
            if isinstance(key, int):
                while len(here) <= key:
                    here.append({})
            if not following:
                here[key] = value
                break
            here = here[key] if isinstance(key, int) else here.setdefault(key, [] if following.startswith("[") else {})
        if source:
            self.sources[path] = source


def _interpolates(value: object) -> bool:
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, Mapping):
        return any(_interpolates(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_interpolates(item) for item in value)


def _plain(value: object) -> Any:
    """What OmegaConf takes: no tuples, sets or ranges."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(item) for item in value]
    return value
