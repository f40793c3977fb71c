"""A terminal of a few lines: what a program has written to it, as lines with their colours.

It knows what rich and prompt_toolkit write: text, line ends, moves of the cursor, erasing, colours.
What has scrolled off is kept, as in a terminal's own scroll-back.
"""

import re
from typing import Final

ROWS: Final = 24
COLUMNS: Final = 80
_PARTS: Final = re.compile(
    r"\x1b\[([?>0-9;]*)([a-zA-Z])|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07|\x1b.|(.)", re.DOTALL
)
_RESET: Final = "\x1b[0m"


class Terminal:
    """Takes output, and returns what a person sees."""

    def __init__(self) -> None:
        """Begin with an empty screen."""
        self._lines: list[list[tuple[str, str]]] = [[]]
        self._row = self._column = 0
        self._style = ""

    def write(self, text: str) -> None:
        """Show what a program writes."""
        for parameters, final, sign in _PARTS.findall(text):
            if final:
                self._control(parameters, final)
            elif sign:
                self._put(sign)

    def text(self) -> str:
        """Return all lines with their colours, without empty ones at the end."""
        shown = [
            "".join(f"{style}{sign}{_RESET}" if style else sign for sign, style in line)
            for line in self._lines
        ]
        return "\n".join(shown).rstrip()

    def _put(self, sign: str) -> None:
        if sign == "\r":
            self._column = 0
        elif sign == "\n":
            self._move(self._row + 1, self._column)
        elif sign == "\b":
            self._column = max(0, self._column - 1)
        elif sign >= " ":
            if self._column == COLUMNS:
                self._move(self._row + 1, 0)
            line = self._lines[self._row]
            line.extend([(" ", "")] * (self._column + 1 - len(line)))
            line[self._column] = (sign, self._style)
            self._column += 1

    def _move(self, row: int, column: int) -> None:
        self._row = max(0, row)
        self._lines.extend([] for _ in range(self._row + 1 - len(self._lines)))
        self._column = min(max(0, column), COLUMNS)

    def _control(self, parameters: str, final: str) -> None:
        numbers = [int(one) for one in parameters.split(";") if one.isdecimal()]
        count = numbers[0] if numbers else 1
        moves = {"A": (-count, 0), "B": (count, 0), "C": (0, count), "D": (0, -count)}
        if final in moves:
            rows, columns = moves[final]
            self._move(self._row + rows, min(self._column, COLUMNS - 1) + columns)
        elif final == "K":
            self._erase_line(numbers[0] if numbers else 0)
        elif final == "J":
            self._erase_line(0)
            del self._lines[self._row + 1 :]
        elif final == "m":
            is_reset = parameters in {"", "0"}
            begins_anew = parameters.startswith("0;")
            escape = f"\x1b[{parameters}m"
            self._style = "" if is_reset else escape if begins_anew else self._style + escape

    def _erase_line(self, which: int) -> None:
        line = self._lines[self._row]
        if which == 0:
            del line[self._column :]
        else:
            line.clear()
