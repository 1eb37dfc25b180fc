"""A regular expression of Java → the same one of Python's `re`, or a refusal: never one with another meaning.

Covers what patterns over names need. Not: Unicode properties, classes in classes, flags but i and s, word
boundaries (JDK 19 gave them another meaning), and what Python cannot do. Source: java.util.regex.Pattern.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class JavaRegexError(ValueError):
    """Not an expression of Java, or one that this module does not translate."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression of Java. Raises JavaRegexError."""
    try:
        # ASCII: \d, \w, \s and (?i) go by ASCII in Java, too.
        return re.compile(_Translation(pattern).result(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise JavaRegexError(f"{error} (once translated to Python)") from None


_LINE_ENDS: Final = r"\n\r\u0085\u2028\u2029"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"  # also before a last line end
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": r"\x20-~",
    "Blank": r"\x20\t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\x20\t\n\x0b\f\r",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?", re.ASCII)
_PROPERTY: Final = re.compile(r"\{(\w+)\}", re.ASCII)
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_NAME: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS: Final = re.compile(r"\?([is]*)(?:-([is]*))?([:)])")
_GROUPS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>")


class _Flags(NamedTuple):
    ignore_case: bool
    dot_all: bool


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._pos = 0
        self._out: list[str] = []
        self._flags = _Flags(ignore_case=False, dot_all=False)
        self._outer: list[tuple[_Flags, int]] = []  # of each open group: flags around it, its number or 0
        self._groups = 0
        self._closed: set[int] = set()
        self._repeatable = False

    def result(self) -> str:
        while self._pos < len(self._text):
            self._token()
        if self._outer:
            self._refuse("a group is not closed")
        return "".join(self._out)

    def _refuse(self, why: str) -> None:
        raise JavaRegexError(f"{why}, before character {self._pos + 1}")

    def _take(self) -> str:
        if self._pos == len(self._text):
            self._refuse("it ends too soon")
        self._pos += 1
        return self._text[self._pos - 1]

    def _follows(self, text: str) -> bool:
        if not self._text.startswith(text, self._pos):
            return False
        self._pos += len(text)
        return True

    def _atom(self, text: str) -> None:
        self._out.append(text)
        self._repeatable = True

    def _letters(self, text: str) -> None:
        """What is subject to (?i)."""
        self._atom(f"(?i:{text})" if self._flags.ignore_case else text)

    def _mark(self, text: str) -> None:
        """What cannot be repeated."""
        self._out.append(text)
        self._repeatable = False

    def _token(self) -> None:
        quantifier = _QUANTIFIER.match(self._text, self._pos)
        if quantifier is not None:
            if not self._repeatable:
                self._refuse(f"{quantifier[0]} has nothing to repeat")
            self._pos = quantifier.end()
            self._mark(quantifier[0])
            return
        char = self._take()
        match char:
            case "\\":
                self._escape()
            case ".":
                self._atom(r"[\s\S]" if self._flags.dot_all else _DOT)
            case "^":
                self._mark(r"\A")
            case "$":
                self._mark(_END)
            case "(":
                self._open()
            case ")":
                if not self._outer:
                    self._refuse("a ) that closes nothing")
                self._flags, number = self._outer.pop()
                if number:
                    self._closed.add(number)
                self._atom(")")
            case "|":
                self._mark("|")
            case "[":
                self._class()
            case "{":
                self._refuse("a { that repeats nothing")
            case _:
                self._letters(re.escape(char))

    def _open(self) -> None:
        flags = _FLAGS.match(self._text, self._pos)
        if flags is not None and flags[3] == ")":
            if flags[1] or flags[2]:
                self._pos = flags.end()
                self._set_flags(flags)
                self._repeatable = False
                return
            self._refuse("flags without a flag")
        self._outer.append((self._flags, 0))
        if flags is not None:  # also (?:
            self._pos = flags.end()
            self._set_flags(flags)
            self._mark("(?:")
            return
        for opening in _GROUPS:
            if self._follows(opening):
                self._mark(f"({opening}")
                return
        self._groups += 1
        self._outer[-1] = (self._flags, self._groups)
        if self._follows("?"):
            name = _NAME.match(self._text, self._pos)
            if name is None:
                self._refuse("a kind of group that is not known here")
                return
            self._pos = name.end()
            self._mark(f"(?P<{name[1]}>")
        else:
            self._mark("(")

    def _set_flags(self, flags: re.Match[str]) -> None:
        on, off = flags[1], flags[2] or ""
        self._flags = _Flags(
            ignore_case=("i" in on or self._flags.ignore_case) and "i" not in off,
            dot_all=("s" in on or self._flags.dot_all) and "s" not in off,
        )

    def _escape(self) -> None:
        if self._follows("Q"):
            for char in self._quoted():
                self._letters(re.escape(char))
            return
        following = self._text[self._pos : self._pos + 1]
        if "1" <= following <= "9":
            self._back_reference()
        elif self._follows("k"):
            name = _NAME.match(self._text, self._pos)
            if name is None:
                self._refuse("a back reference without a name")
                return
            self._pos = name.end()
            self._letters(f"(?P={name[1]})")
        elif self._follows("A"):
            self._mark(r"\A")
        elif self._follows("z"):
            self._mark(r"\Z")
        elif self._follows("Z"):
            self._mark(_END)
        elif following and following in "dDwWsS":
            self._atom("\\" + self._take())
        elif self._follows("p"):
            self._letters(f"[{self._property()}]")
        elif self._follows("P"):
            self._letters(f"[^{self._property()}]")
        else:
            self._letters(re.escape(self._character()))

    def _quoted(self) -> str:
        text, _, rest = self._text[self._pos :].partition("\\E")
        self._pos = len(self._text) - len(rest)
        return text

    def _back_reference(self) -> None:
        """As many digits count as make the number of a group so far."""
        number = int(self._take())
        while self._text[self._pos : self._pos + 1] in set("0123456789"):
            longer = number * 10 + int(self._text[self._pos])
            if longer > self._groups:
                break
            number = longer
            self._pos += 1
        if number not in self._closed:
            self._refuse(f"group {number} is not closed before \\{number}")
        self._letters(f"(?:\\{number})")

    def _property(self) -> str:
        name = _PROPERTY.match(self._text, self._pos)
        if name is None or name[1] not in _POSIX:
            self._refuse("a property other than those of ASCII (\\p{Alpha}, \\p{Alnum}, …)")
            return ""
        if self._flags.ignore_case and name[1] in {"Lower", "Upper"}:
            self._refuse(f"\\p{{{name[1]}}} under (?i)")
        self._pos = name.end()
        return _POSIX[name[1]]

    def _character(self) -> str:
        """After a backslash, what stands for one character."""
        code = _HEX.match(self._text, self._pos)
        if code is not None:
            self._pos = code.end()
            number = int(code[1] or code[2] or code[3], 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                self._refuse("half a character, or none")
            return chr(number)
        char = self._take()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isascii() and char.isalnum():
            self._refuse(f"\\{char} is not known here")
        return char

    def _class(self) -> None:
        negated = self._follows("^")
        items: list[str] = []
        while not items or not self._follows("]"):
            if self._text.startswith(("&&", "["), self._pos):
                self._refuse("a class in a class, or && (a [ by itself is \\[)")
            several = self._several()
            if several is not None:
                items.append(several)
                continue
            item = self._single()
            rest = self._text[self._pos : self._pos + 2]
            if len(rest) == 2 and rest[0] == "-" and rest[1] not in "[]":
                self._take()
                item += f"-{self._single()}"
            items.append(item)
        self._letters(f"[{'^' if negated else ''}{''.join(items)}]")

    def _single(self) -> str:
        """One character of a class."""
        return re.escape(self._character() if self._follows("\\") else self._take())

    def _several(self) -> str | None:
        """What stands for more than one character of a class, if that is what follows."""
        if self._follows("\\Q"):
            return "".join(map(re.escape, self._quoted()))
        if self._follows("\\p"):
            return self._property()
        two = self._text[self._pos : self._pos + 2]
        if len(two) == 2 and two[0] == "\\" and two[1] in "dDwWsS":
            self._pos += 2
            return two
        return None
