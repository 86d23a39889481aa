"""Text from elsewhere made safe for a terminal: what files, workers and programs wrote, in messages and tables."""

from __future__ import annotations

import logging
import re

# control characters, line and paragraph separators, and what turns the direction of text or is not seen (UAX #9, UTR #36)
_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def _escape(match: re.Match[str]) -> str:
    letter = match.group()
    return " " if letter in "\n\r\t" else f"\\u{{{ord(letter):x}}}"


def printable(text: str) -> str:
    """The text as one line, with each character that would steer a terminal as its escape, spelt as the program does."""
    return _STEERS.sub(_escape, text)


class _Printable(logging.Filter):
    """Makes every message of a logger printable."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        safe = printable(message)
        if safe != message:
            record.msg, record.args = safe, ()
        return True


logging.getLogger("autotune_lowered").addFilter(_Printable())
