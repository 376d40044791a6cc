"""A dump's directory is called by its reason and a number; one place reads and writes that."""

from __future__ import annotations

import pytest

from accelprof.contracts.words import DUMP_REASONS
from accelprof.output.dumps import PLACE, DumpName, names


@pytest.mark.parametrize("reason", DUMP_REASONS)
def test_a_name_is_read_as_it_was_written(reason):
    """Every reason, with numbers of any length that a name may have."""
    for number in (1, 10, 999_999):
        assert DumpName.parse(str(DumpName(reason, number))) == DumpName(reason, number)


@pytest.mark.parametrize("name", ["", "slow", "slow-", "-1", "fast-1", "slow-1.part", ".slow-1.7.8", "hang-1234567"])
def test_what_is_called_otherwise_is_no_dump(name):
    """Half-made directories, other words and numbers beyond six digits."""
    assert DumpName.parse(name) is None


def test_dumps_are_in_the_order_of_their_numbers(tmp_path):
    """Not of their letters: the tenth comes after the ninth."""
    for name in ("slow-10", "slow-9", "hang-2", "other-1"):
        (tmp_path / PLACE / name).mkdir(parents=True)
    assert names(str(tmp_path)) == ["hang-2", "slow-9", "slow-10"]
