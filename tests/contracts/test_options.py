"""What options of tools and exporters refuse, whoever declares them."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from accelprof.contracts.exporter import ExporterOptions
from accelprof.contracts.tool import ToolOptions
from accelprof.engines.options import EngineOptions
from accelprof.exporters.monitoring import PrometheusOptions
from accelprof.tools.trace import TraceOptions


class Own(ToolOptions):
    """A third party's."""

    number: int | None = None
    share: Annotated[float, Field(ge=0)] = 0.5
    switch: bool = False
    either: int | bool = 0
    word: str = ""


@pytest.mark.parametrize(
    ("options", "key"), [(Own, "number"), (Own, "share"), (TraceOptions, "max_spans"), (PrometheusOptions, "port")]
)
@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_no_number(options: type[ToolOptions | ExporterOptions], key: str, value: bool) -> None:
    """``port: true`` was port 1."""
    with pytest.raises(ValidationError, match="a truth value is no number; allowed: a number"):
        options(**{key: value})


def test_a_truth_value_where_one_belongs() -> None:
    """Also where a number may stand instead."""
    made = Own(number=None, share=1, switch=True, either=True)
    assert (made.share, made.switch, made.either) == (1.0, True, True)


@pytest.mark.parametrize("port", [65536, -1])
def test_a_port_is_one(port: int) -> None:
    """Refused before anything is served."""
    with pytest.raises(ValidationError, match="port"):
        PrometheusOptions(port=port)


@pytest.mark.parametrize("value", [[["cpu"]], [{"a": 1}], [3]])
def test_an_odd_item_among_names_is_named(value: object) -> None:
    """A list in a list was an internal error."""
    with pytest.raises(ValidationError, match=r"contents\.0"):
        EngineOptions(contents=value)  # type: ignore[arg-type]
