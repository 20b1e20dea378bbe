"""What an unquoted YAML scalar means: one rule for files and for the command line. And what a table's cell means.

Numbers are what people write as numbers: `12`, `2_000_000`, `-.5`, `1e-3`, `1e6`. What YAML readers are
known to disagree about (octal, sexagesimal, `on`/`no`, `.inf`, …) is refused with what to write instead.
Everything else, and everything in quotes, is text.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from sweeps.errors import ScalarError, shown

Scalar = bool | int | float | str | None

WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# As long as a shortened git hash: `1234e56` is more likely a name than 1.234e+59.
HASH_LENGTH = 7
MAX_DIGITS = 300
# A whole number with an exponent is an int if it fits a 64-bit integer, else a float.
INT64 = 2**63

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:(?P<whole>[0-9]+|[1-9][0-9]{0,2}(?:_[0-9]{3})+)(?P<point>\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:[eE](?P<exponent>[-+]?[0-9]+))?"
)
_YAML11_BOOL = re.compile(r"(?:on|off|yes|no|y|n)", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[-+]?\.?(?:inf|nan|infinity)", re.IGNORECASE)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-9]{1,2})+(?:\.[0-9_]*)?")
_RADIX = re.compile(r"[-+]?0[xXoObB][0-9a-fA-F_]+")
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9_]+)?")
_COMMAS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_FOREIGN_MINUS = re.compile(r"[\u2010-\u2015\u2212]\s*\.?[0-9].*")


def parse_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar.

    >>> parse_scalar("1e6"), parse_scalar("1e-3"), parse_scalar("2_000_000"), parse_scalar("20M")
    (1000000, 0.001, 2000000, '20M')

    A number with an exponent is an int when it is whole, has no minus in its exponent and is below 2**63
    (`1e6`, `1.5e9`); other numbers with a point or an exponent are floats.

    Digits-e-digits without a sign or a point, seven characters or longer, might be a git hash. It never
    becomes a number: text if the number would be infinite (`695e0514`), refused if finite (`1234e56`).

    Raises ScalarError for a spelling whose meaning depends on the reader.
    """
    if text in WORDS:
        return WORDS[text]
    if (match := _NUMBER.fullmatch(text)) is not None:
        return _number(text, match)
    if (problem := _ambiguity(text)) is not None:
        raise ScalarError(problem)
    return text


def parse_key(text: str) -> Scalar:
    """The value of an unquoted key: as `parse_scalar`, but `n`, `y`, `on` and the like are names.

    A key can't be meant as a truth value, and `n` is a common name.
    """
    return text if _YAML11_BOOL.fullmatch(text) else parse_scalar(text)


SUFFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_SUFFIXED = re.compile(r"(?P<number>[^ ]*?) ?(?P<suffix>[kKMGBTP])")
_POWER = re.compile(r"(?P<base>[0-9.]+) ?(?:\*\*|\^) ?(?P<exponent>[-+]?[0-9.]+)")


def parse_number(text: str) -> float | None:
    """The number that a cell of a table holds; None if it holds none.

    >>> parse_number("1.2B"), parse_number("30k"), parse_number("2**-7"), parse_number("2_000"), parse_number("x")
    (1200000000.0, 30000.0, 0.0078125, 2000.0, None)

    Suffixes are k, M, B (or G), T and P; `NaN`, `inf` and `-inf` are numbers here.
    """
    text = text.strip()
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if (power := _POWER.fullmatch(text)) is not None:
        base, exponent = (parse_number(part) for part in power.groups())
        return None if base is None or exponent is None else _raised(base, exponent)
    if (suffixed := _SUFFIXED.fullmatch(text)) is not None:
        number = _plain_number(suffixed["number"])
        return None if number is None else number * SUFFIXES[suffixed["suffix"]]
    return _plain_number(text)


def _plain_number(text: str) -> float | None:
    return float(text.replace("_", "")) if _NUMBER.fullmatch(text) else None


def _raised(base: float, exponent: float) -> float | None:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return None


def _number(text: str, match: re.Match[str]) -> int | float | str:
    whole, exponent = match["whole"], match["exponent"]
    plain = text.replace("_", "")
    if len(plain) > MAX_DIGITS:
        raise ScalarError(f"a number of {len(plain)} characters; put it in quotes if it is text")
    if whole and len(whole) > 1 and whole[0] == "0":
        _refuse_leading_zero(text, plain)
    if exponent is None:
        return int(plain) if match["point"] is None and whole else float(plain)
    bare = match["sign"] == "" and match["point"] is None and whole and exponent[0] not in "+-"
    if bare and len(text) >= HASH_LENGTH:
        return _hash_or_refusal(text)
    return _with_exponent(text, plain, exponent)


def _refuse_leading_zero(text: str, plain: str) -> None:
    digits = plain.lstrip("+-")
    octal = digits.isdigit() and set(digits) <= set("01234567") and int(digits, 8) != int(digits)
    also = f" ({int(digits, 8)} if octal was meant)" if octal else ""
    stripped = ("-" if plain[0] == "-" else "") + re.sub(r"^0+(?=[0-9])", "", digits)
    raise ScalarError(
        f"`{text}` starts with a zero, which some readers take for octal: "
        f"write {stripped}{also}, or '{text}' in quotes for text"
    )


def _hash_or_refusal(text: str) -> str:
    value = float(text)
    if math.isinf(value):
        return text
    raise ScalarError(
        f"`{text}` may be a number ({value!r}) or a name such as a git hash: "
        f"write {value!r}, or '{text}' in quotes for text"
    )


def _with_exponent(text: str, plain: str, exponent: str) -> int | float:
    value = float(plain)
    if math.isinf(value):
        raise ScalarError(f"`{shown(text)}` is too large for a float; put it in quotes if it is text")
    exact = Decimal(plain)
    if value == 0 and exact != 0:
        raise ScalarError(f"`{text}` is too small for a float and would become 0")
    # The size is tested first, so that no huge exact integer is built.
    if exponent[0] != "-" and abs(value) < INT64 and exact == exact.to_integral_value():
        return int(exact)
    return value


def _ambiguity(text: str) -> str | None:
    """Why some reader, or the person who wrote it, would take `text` for something else than text."""
    name = shown(text, 30)
    quoted = f"'{name}' in quotes for text"
    if _YAML11_BOOL.fullmatch(text):
        word = "true" if text.lower() in ("on", "yes", "y") else "false"
        return f"`{name}` is a truth value to some YAML readers and text to others: write {word}, or {quoted}"
    if text == "None":
        return f"`None` is Python's spelling: write null, or {quoted}"
    if _NOT_FINITE.fullmatch(text):
        return (
            f"`{name}` is not a finite number, which a configuration can't hold: "
            f"write null or leave the key out, or {quoted}"
        )
    if _SEXAGESIMAL.fullmatch(text):
        return f"`{name}` is a number in base 60 to some YAML readers{_sixties(text)}: write {quoted}"
    if _RADIX.fullmatch(text):
        decimal = _decimal(text)
        return f"`{name}` is a number to some YAML readers and text to others: write {decimal}{quoted}"
    if _UNDERSCORED.fullmatch(text):
        plain = shown(text.replace("_", ""), 30)
        return f"`{name}` has underscores that don't group digits in threes: write {plain}, or {quoted}"
    if _COMMAS.fullmatch(text):
        return f"`{name}` has commas: write {shown(text.replace(',', '_'), 30)}, or {quoted}"
    if _FOREIGN_MINUS.fullmatch(text):
        return (
            f"`{name}` starts with the character U+{ord(text[0]):04X}, which looks like a minus: "
            f"write -{name[1:].strip()}, or {quoted}"
        )
    return None


def _sixties(text: str) -> str:
    if "." in text or len(text) > 20:
        return ""
    value = 0
    for part in text.lstrip("+-").replace("_", "").split(":"):
        value = value * 60 + int(part)
    return f" ({'-' if text[0] == '-' else ''}{value})"


def _decimal(text: str) -> str:
    try:
        return f"{int(text, 0)}, or " if len(text) <= 20 else ""
    except ValueError:
        return ""
