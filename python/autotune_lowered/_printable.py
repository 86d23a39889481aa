"""Makes external text safe for a terminal: text of files, workers and programs in messages and tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterator, Sequence

# control characters, line and paragraph separators, bidirectional and invisible characters (UAX #9, UTR #36)
_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def _escape(match: re.Match[str]) -> str:
    letter = match.group()
    return " " if letter in "\n\r\t" else f"\\u{{{ord(letter):x}}}"


def printable(text: str) -> str:
    """The text as one line, with each character that would control a terminal escaped in the program's spelling."""
    return _STEERS.sub(_escape, text)


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> Iterator[str]:
    """Rows of a table as lines, made printable, with the columns in `right` to the right."""
    told = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*told, strict=True)]
    for row in told:
        cells = zip(row, widths, strict=True)
        placed = (cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(cells))
        yield "  ".join(placed).rstrip()


class _Printable(logging.Filter):
    """Makes every message of a logger printable."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        safe = printable(message)
        if safe != message:
            record.msg, record.args = safe, ()
        return True


logging.getLogger("autotune_lowered").addFilter(_Printable())
