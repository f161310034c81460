"""Figures by name, the tables they are shown in, and the few statistics that are used."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field


def median(samples: list[float]) -> float:
    return statistics.median(samples)


def percentile(samples: list[float], share: float) -> float:
    """Return the smallest sample that at least this share of them does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class Table:
    """Rows of text, each beginning with what it is about."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: str | float) -> None:
        self.rows.append([cell if isinstance(cell, str) else number(cell) for cell in cells])


def number(value: float) -> str:
    """Return about three digits."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}x"


@dataclass
class Book:
    """All that one run found out: figures for programs, tables for people, what was left out."""

    figures: dict[str, float] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def put(self, name: str, value: float) -> float:
        self.figures[name] = value
        return value

    def table(self, title: str, note: str, *columns: str) -> Table:
        made = Table(title, note, list(columns))
        self.tables.append(made)
        return made
