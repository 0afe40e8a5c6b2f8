"""A Parquet file that is written a part at a time: columns as they are told, rows as dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvlife.replay.exporting.columns import Column, Kind

# A part is written when it has so many rows, or so many numbers in lists.
MAX_ROWS = 1 << 16
MAX_LISTED = 1 << 22


_TYPES: dict[Kind, pa.DataType] = {
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.uint64(),
    Kind.TEXT: pa.string(),
    Kind.NAME: pa.dictionary(pa.int32(), pa.string()),
    Kind.FLAG: pa.bool_(),
    Kind.INT32S: pa.list_(pa.int32()),
    Kind.UINT64S: pa.list_(pa.uint64()),
}
_LISTS = {Kind.INT32S: np.int32, Kind.UINT64S: np.uint64}


class ParquetTable:
    """One file; use it as a context, or call `close`."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._columns = columns
        self.schema = pa.schema(
            [
                pa.field(column.name, _TYPES[column.kind], metadata={"doc": column.doc})
                for column in columns
            ]
        )
        self._writer = pq.ParquetWriter(path, self.schema, compression="zstd")
        self._rows: list[Mapping[str, object]] = []
        self._num_listed = 0
        self.num_rows = 0

    def add(self, row: Mapping[str, object], num_listed: int = 0) -> None:
        """One row; `num_listed` is how many numbers its lists hold."""
        self._rows.append(row)
        self._num_listed += num_listed
        if len(self._rows) >= MAX_ROWS or self._num_listed >= MAX_LISTED:
            self._put_rows()

    def add_columns(self, columns: Mapping[str, pa.Array]) -> None:
        """Many rows, as arrays of all columns."""
        arrays = [columns[column.name] for column in self._columns]
        self._put(arrays)

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._put_rows()
        self._writer.close()

    def _put_rows(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._num_listed = self._rows, [], 0
        self._put(
            [
                _array(column.kind, [row.get(column.name) for row in rows])
                for column in self._columns
            ]
        )

    def _put(self, arrays: list[pa.Array]) -> None:
        batch = pa.record_batch(arrays, schema=self.schema)
        self.num_rows += batch.num_rows
        self._writer.write_batch(batch, row_group_size=MAX_ROWS)


def _array(kind: Kind, values: list[Any]) -> pa.Array:  # Any: what a column of this kind holds
    dtype = _LISTS.get(kind)
    if dtype is None:
        return pa.array(values, _TYPES[kind])
    sizes = [0 if value is None else len(value) for value in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    there = [value for value in values if value is not None]
    joined = np.concatenate(there) if there else np.empty(0, dtype)
    missing = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(joined), mask=missing)
