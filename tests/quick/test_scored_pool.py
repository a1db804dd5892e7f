"""Names of kernels in prepared answers."""

from __future__ import annotations

import pytest

from ckh.quick.scored_pool import decode_name, encode_names


@pytest.mark.parametrize("words", [3, 255, 256])
def test_names_are_read_as_they_were_written(words: int) -> None:
    """Records have one length, and a byte for each word up to 255 distinct ones."""
    names = ["_".join(f"w{(number * step) % words}" for step in range(1, 2 + number % 7)) for number in range(300)]
    names.append("_".join(f"w{number}" for number in range(words)))
    known, records = encode_names(names)
    assert {len(record) for record in records} == {max(words, 7) if words < 256 else len(names[-1])}
    assert sorted(known) == (sorted(f"w{number}" for number in range(words)) if words < 256 else [])
    assert [decode_name(record, known) for record in records] == names
