"""The base of all that a configuration is read into: its own keys, those of tools, those of exporters."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator

from accelprof.errors import NotAllowedError


class Options(BaseModel):
    """Unknown keys are refused, with the nearest match named by the configuration loader, and truth values where a number belongs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        annotation = cls.model_fields[info.field_name or ""].annotation
        types = set(get_args(annotation) or (annotation,))
        if isinstance(value, bool) and types <= {int, float, type(None)}:
            raise NotAllowedError("a truth value is no number", f"a number{', null' if type(None) in types else ''}")
        return value


def unique(value: object) -> Any:
    """Names of an option in their order, each once; a single one may stand without a list."""
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        return items
    return tuple(dict.fromkeys(items)) if all(isinstance(item, str) for item in items) else tuple(items)


def _words(value: object) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


#: words of a command line, as often as they are given; a single one may stand without a list
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
