# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""Tables of reports and traces, for pandas, polars and pyarrow, which are all optional."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, overload

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Maximum number of rows shown in a notebook.
_SHOWN = 20


class Table(Sequence[Mapping[str, Any]]):
    """Rows by column name. Numbers are those of the report: nanoseconds (`_ns`), bytes, shares from 0 to 1."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], parquet: Callable[[], Path] | None = None) -> None:
        self._rows = rows
        # Writes the table as Parquet with the command, and returns the file.
        self._parquet = parquet

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the order of the first row that has them."""
        return tuple(dict.fromkeys(name for row in self._rows for name in row))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Table: ...

    def __getitem__(self, at: int | slice) -> Mapping[str, Any] | Table:
        return Table(self._rows[at]) if isinstance(at, slice) else self._rows[at]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"

    def column(self, name: str) -> list[Any]:
        """Values of a column; None if a row has none.

        Raises KeyError for a name that no row has.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return [row.get(name) for row in self._rows]

    def _flat(self) -> dict[str, list[Any]]:
        """Columns; nested values have a dot in the name."""
        rows = [_flattened(row) for row in self._rows]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas.DataFrame; nested values become columns such as `geometry.waves`. Needs `pip install pandas`."""
        import pandas

        return pandas.DataFrame(self._flat())

    def to_polars(self) -> polars.DataFrame:
        """As a polars.DataFrame, as `to_pandas`. Needs `pip install polars`."""
        import polars

        return polars.DataFrame(self._flat(), strict=False)

    def to_arrow(self) -> pyarrow.Table:
        """As a pyarrow.Table, as `to_pandas`. Needs `pip install pyarrow`."""
        import pyarrow

        return pyarrow.table(self._flat())

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Writes a Parquet file. gpuwhy writes complete tables of a trace; other tables need pyarrow."""
        to = Path(path)
        if self._parquet is not None:
            to.write_bytes(self._parquet().read_bytes())
            return to
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.to_arrow(), str(to))
        return to

    def _repr_html_(self) -> str:
        columns = [name for name in self.columns if not any(isinstance(row.get(name), (dict, list)) for row in self._rows)]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(row.get(name)))}</td>" for name in columns) + "</tr>"
            for row in self._rows[:_SHOWN])
        more = f"<p>{len(self) - _SHOWN} more rows</p>" if len(self) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flattened(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update(_flattened(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
