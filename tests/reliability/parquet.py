"""Damaged Parquet files: bytes of a valid one, and files whose columns and metadata are not a dataset's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckh.schema import SCHEMA_VERSION
from tests.reliability import samples
from tests.reliability.mutation import VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reliability.mutation import Mutator

_METADATA = {"schema_version": SCHEMA_VERSION, "sources": [], "runs": []}


def damaged_parquet(mutator: Mutator) -> bytes:
    """Another file: of every four, three have damaged bytes, the last one has unexpected columns."""
    return _strange(mutator, samples.table()) if mutator.random.random() < 0.25 else mutator.next()


def damaged_table(table: Callable[[], Any]) -> Callable[[Mutator], bytes]:
    """Same as `damaged_parquet`, for a table that is not a dataset; half of the files have unexpected columns."""
    return lambda mutator: _strange(mutator, table()) if mutator.random.random() < 0.5 else mutator.next()


def _strange(mutator: Mutator, table: Any) -> bytes:
    random = mutator.random
    for _ in range(random.choice((1, 1, 2))):
        index = random.randrange(len(table.column_names))
        name = table.column_names[index]
        kind = random.randrange(5)
        if kind == 0:
            table = table.remove_column(index)
        elif kind == 1:
            table = table.append_column(name, table.column(index))
        else:
            table = table.set_column(index, name, _column(random, len(table)))
    document = dict(_METADATA)
    if random.random() < 0.2:
        document[random.choice(list(document))] = random.choice(VALUES)
    text = json.dumps(document).encode() if random.random() < 0.9 else mutator.next()
    return samples.as_parquet(table.replace_schema_metadata({b"ckh": text}))


def _column(random: Any, rows: int) -> Any:
    import pyarrow as pa

    texts = ["", "x", "gfx999", "conv_forward", "a\x1b[31m", "é" * 9, None, "compv3", "ok", "forward", "host"]
    choices: list[tuple[Any, list[Any]]] = [
        (pa.null(), [None]),
        (pa.list_(pa.int64()), [[1], None]),
        (pa.bool_(), [True, False]),
        (pa.struct({"a": pa.int64()}), [{"a": 1}]),
        (pa.int64(), [-1, 0, 1, 7, 2**31, 2**62, None]),
        (pa.float64(), [float("nan"), float("inf"), -1.5, 1.5, 0.0, 1e308, None]),
        (pa.binary(), [b"\xff\xfe", b"a", b"\xed\xa0\x80"]),
        (pa.string(), texts),
        (pa.string(), texts),
    ]
    kind, values = random.choice(choices)
    result = pa.array([random.choice(values) for _ in range(rows)], kind)
    if kind == pa.binary():
        return result.view(pa.string())
    return result.dictionary_encode() if kind == pa.string() and random.random() < 0.5 else result
