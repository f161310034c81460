"""The book of a run as text for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.figures import Book, Table


def text(table: Table) -> str:
    rows = [table.columns, *table.rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
    lines = [f"{table.title}  ({table.note})", ""]
    for row in rows:
        cells = [
            cell.ljust(width) if _is_text(table, at) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    lines.insert(3, "  " + "  ".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"


def _is_text(table: Table, at: int) -> bool:
    return any(row[at] and not (row[at][0].isdigit() or row[at] == "-") for row in table.rows)


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "root": os.geteuid() == 0,
    }


def as_json(book: Book, before: dict[str, object]) -> str:
    tables = [
        {"title": table.title, "note": table.note, "columns": table.columns, "rows": table.rows}
        for table in book.tables
    ]
    value = {
        "machine": before,
        "figures": book.figures,
        "left_out": book.left_out,
        "tables": tables,
    }
    return json.dumps(value, indent=1) + "\n"
