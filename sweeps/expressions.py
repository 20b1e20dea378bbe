"""Expressions of a spec: arithmetic and conditions over named values, with nothing else in reach.

Python's parser reads the text, a whitelist decides which nodes may stay, simpleeval evaluates them with
operators that are bounded in time and memory.
"""

from __future__ import annotations

import ast
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simpleeval import InvalidExpression, SimpleEval

from sweeps.errors import ExpressionError, Impossible, NoValue, described, listed, nearest, shown

__all__ = ["FUNCTIONS", "Expression", "ExpressionError", "NoValue", "compile_equation", "compile_expression"]

MAX_LENGTH = 1000  # characters
MAX_DEPTH = 40
MAX_NODES = 400
MAX_BITS = 1100  # a little more than a float's range: no integer grows beyond

Value = bool | int | float | str | None


class Expression:
    """A compiled expression: `text`, the `names` it reads (dotted ones included), and a call.

    >>> compile_expression("20 * n_params if rule != 'sp' else 1e9")({"n_params": 3, "rule": "mup"})
    60
    """

    def __init__(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self.names = frozenset(node.id for node in _walk(tree) if isinstance(node, ast.Name))
        self._tree = tree
        self._evaluator = _Evaluator()
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __call__(self, names: Mapping[str, Any]) -> Any:
        """The value, with `names` giving at least `self.names`.

        Raises ExpressionError (an unknown name, text where a number is needed) or NoValue (division by
        zero, the logarithm of 0, a result beyond a float's range).
        """
        with self._lock:
            self._evaluator.names = names
            try:
                return self._evaluator.value(self._tree)
            except Impossible:  # the task's own words
                raise
            except ExpressionError as error:
                raise type(error)(f"`{shown(self.text)}`: {error}") from None
            except ZeroDivisionError:
                raise NoValue(f"`{shown(self.text)}`: division by zero") from None
            except OverflowError:
                raise NoValue(f"`{shown(self.text)}`: the result is too large") from None
            except ValueError:
                raise NoValue(f"`{shown(self.text)}`: a function outside its domain") from None
            except (TypeError, InvalidExpression) as error:
                raise ExpressionError(f"`{shown(self.text)}`: {error}") from None
            finally:
                self._evaluator.names = {}

    def number(self, names: Mapping[str, Any]) -> int | float:
        """The value as a finite number; a float that is whole (and below 2**53) becomes an int.

        Raises as the call does, ExpressionError if the value is not a number, NoValue if it isn't finite.
        """
        value = self(names)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionError(f"`{shown(self.text)}` must give a number, but gives {described(value)}")
        if not math.isfinite(value):
            raise NoValue(f"`{shown(self.text)}` is {value}")
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)
        return value

    def truth(self, names: Mapping[str, Any]) -> bool:
        """The value as true or false. Raises as the call does, ExpressionError if it is neither."""
        value = self(names)
        if not isinstance(value, bool):
            raise ExpressionError(
                f"`{shown(self.text)}` must give true or false, but gives {described(value)}; compare it with something"
            )
        return value


def compile_expression(text: str) -> Expression:
    """Reads an expression. Raises ExpressionError for what isn't one, with the reason.

    Allowed: numbers, text in quotes, true/false/null, names and dotted configuration paths, `+ - * / // % **`,
    comparisons, `in` a list, `and or not`, `x if condition else y`, and the functions in FUNCTIONS.
    """
    tree = _parse(text)
    return Expression(text, _checked(tree, text))


def compile_equation(text: str) -> tuple[Expression, Expression]:
    """The two sides of `lhs == rhs`. Raises ExpressionError."""
    tree = _checked(_parse(text), text)
    if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq)):
        raise ExpressionError(f"`{shown(text)}` must be an equation, such as `flops == 1e15`")
    left, right = text.split("==", 1)
    return Expression(left.strip(), tree.left), Expression(right.strip(), tree.comparators[0])


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"an expression of {len(text)} characters, beginning `{shown(text, 30)}`; at most {MAX_LENGTH} are allowed"
        )
    if not text.strip():
        raise ExpressionError("an empty expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"`{shown(text)}` can't be read{_hint(text, error)}") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"`{shown(text)}` can't be read: it is nested too deeply or has a bad number") from None


def _hint(text: str, error: SyntaxError) -> str:
    bare = text
    for operator in ("==", "<=", ">=", "!="):
        bare = bare.replace(operator, "")
    hints = {
        "=": "`=` compares nothing; write `==`",
        "&&": "write `and` for `&&`",
        "||": "write `or` for `||`",
        "!": "write `not` for `!`",
        "?": "write `x if condition else y`",
        "${": "write the name without `${…}`",
    }
    for sign, hint in hints.items():
        if sign in bare:
            return f": {hint}"
    return f": {error.msg} at character {error.offset}" if error.offset else f": {error.msg}"


_LEAVES = (ast.Constant, ast.Name)
_INNER = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.List, ast.Tuple)
_WORDS = {"true": True, "false": False, "null": None}
_REFUSED: dict[type[ast.AST], str] = {
    ast.Attribute: "only dotted configuration paths such as `model.depth` may have dots",
    ast.Subscript: "indexing with [] is not available",
    ast.Lambda: "functions can't be defined",
    ast.JoinedStr: "f-strings are not available",
    ast.NamedExpr: "values can't be assigned; write `==` to compare",
    ast.keyword: "functions take no named arguments",
    ast.BitXor: "write `**` for powers",
    ast.BitAnd: "write `and` for `&`",
    ast.BitOr: "write `or` for `|`",
}


def _checked(tree: ast.expr, text: str) -> ast.expr:
    """The tree with dotted paths as single names, if only allowed nodes are in it."""
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    count = 0
    while stack:  # not recursive, so that no depth can hurt
        node, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ExpressionError(f"`{shown(text)}` is too long or nested too deeply")
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    try:
        return _Whitelist().visit(tree)  # type: ignore[no-any-return]
    except ExpressionError as error:
        raise ExpressionError(f"`{shown(text)}`: {error}") from None


class _Whitelist(ast.NodeTransformer):
    """Refuses every node that isn't plain arithmetic, and folds `a.b.c` into one name."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Attribute):
            return self.path(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Constant):
            return self.constant(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, _INNER):
            return self.generic_visit(node)
        if isinstance(node, ast.expr_context | ast.boolop) or type(node) in _OPERATORS:
            return node
        raise ExpressionError(_REFUSED.get(type(node), f"{type(node).__name__} is not available"))

    def path(self, node: ast.Attribute) -> ast.expr:
        parts = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise ExpressionError(_REFUSED[ast.Attribute])
        parts.append(inner.id)
        if any(part.startswith("__") for part in parts):
            raise ExpressionError("names that start with `__` are not available")
        return ast.Name(".".join(reversed(parts)), ast.Load())

    def name(self, node: ast.Name) -> ast.expr:
        if node.id in _WORDS:
            return ast.Constant(_WORDS[node.id])
        if node.id in FUNCTIONS:
            raise ExpressionError(f"`{node.id}` is a function: write `{node.id}(…)`")
        if node.id.startswith("__"):
            raise ExpressionError("names that start with `__` are not available")
        return node

    def constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        if not isinstance(value, bool | int | float | str | None):
            raise ExpressionError(f"{type(value).__name__} values are not available")
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionError("a number too large for a float")
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ExpressionError("a number too large for a float")
        return node

    def call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            name = ast.unparse(node.func)
            hint = nearest(name, FUNCTIONS) or f"; there are {listed(FUNCTIONS, 20)}"
            raise ExpressionError(f"there is no function `{shown(name)}`{hint}")
        if node.keywords:
            raise ExpressionError(_REFUSED[ast.keyword])
        node.args = [self.visit(argument) for argument in node.args]
        return node


def _walk(tree: ast.expr) -> Iterable[ast.AST]:
    """All nodes but the names of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.func._function = True  # type: ignore[attr-defined]
    return (node for node in ast.walk(tree) if not hasattr(node, "_function"))


def _need_numbers(what: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float):
            raise ExpressionError(f"{what} needs numbers, not {described(value)}")


def _bounded(value: Any) -> Any:
    """A result, if it is a real number of a size that a float has."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError
    if isinstance(value, complex):
        raise NoValue("a root of a negative number")
    return value


Operator = Callable[[Any, Any], Any]


def _arithmetic(sign: str, function: Operator) -> Operator:
    def apply(a: Any, b: Any) -> Any:
        if type(a) not in _PLAIN or type(b) not in _PLAIN:
            _need_numbers(f"`{sign}`", a, b)
        return _bounded(function(a, b))

    return apply


_PLAIN = (int, float)


def _power(a: Any, b: Any) -> Any:
    """`a ** b`, refused before it is computed if the integer result would be huge."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b * (abs(a).bit_length() - 1) > MAX_BITS:
        raise OverflowError
    if isinstance(a, int) and isinstance(b, int) and abs(b) > 2**53:
        a = float(a)
    return a**b


def _ordered(sign: str, function: Operator) -> Operator:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, str) and isinstance(b, str):
            return function(a, b)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            raise ExpressionError(f"`{sign}` can't compare {described(a)} with {described(b)}")
        return function(a, b)

    return apply


def _contains(member: Any, group: Any) -> bool:
    if not isinstance(group, list | tuple):
        raise ExpressionError(f"`in` needs a list such as [1, 2], not {described(group)}")
    return member in group


def _negative(a: Any) -> Any:
    _need_numbers("`-`", a)
    return -a


def _positive(a: Any) -> Any:
    _need_numbers("`+`", a)
    return a


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _arithmetic("+", lambda a, b: a + b),
    ast.Sub: _arithmetic("-", lambda a, b: a - b),
    ast.Mult: _arithmetic("*", lambda a, b: a * b),
    ast.Div: _arithmetic("/", lambda a, b: a / b),
    ast.FloorDiv: _arithmetic("//", lambda a, b: a // b),
    ast.Mod: _arithmetic("%", lambda a, b: a % b),
    ast.Pow: _arithmetic("**", _power),
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: _ordered("<", lambda a, b: a < b),
    ast.LtE: _ordered("<=", lambda a, b: a <= b),
    ast.Gt: _ordered(">", lambda a, b: a > b),
    ast.GtE: _ordered(">=", lambda a, b: a >= b),
    ast.In: _contains,
    ast.NotIn: lambda member, group: not _contains(member, group),
    ast.Not: lambda a: not a,
    ast.USub: _negative,
    ast.UAdd: _positive,
}


def _numeric(name: str, function: Callable[..., Any], least: int = 1, most: int = 1) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        if not least <= len(values) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise ExpressionError(f"`{name}` takes {wanted} values, not {len(values)}")
        _need_numbers(f"`{name}`", *values)
        return _bounded(function(*values))

    return apply


def _round(value: float, digits: int = 0) -> int | float:
    if not isinstance(digits, int) or abs(digits) > 30:  # round(5, -10**9) would take for ever
        raise ExpressionError("`round` takes digits between -30 and 30")
    return round(value, digits) if digits else round(value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _numeric("min", min, 2, MAX_NODES),
    "max": _numeric("max", max, 2, MAX_NODES),
    "abs": _numeric("abs", abs),
    "sqrt": _numeric("sqrt", math.sqrt),
    "log": _numeric("log", math.log, 1, 2),
    "log2": _numeric("log2", math.log2),
    "log10": _numeric("log10", math.log10),
    "exp": _numeric("exp", math.exp),
    "floor": _numeric("floor", math.floor),
    "ceil": _numeric("ceil", math.ceil),
    "round": _numeric("round", _round, 1, 2),
    "int": _numeric("int", int),
}


class _Evaluator(SimpleEval):  # type: ignore[misc]
    """simpleeval with only our nodes, operators and functions."""

    def __init__(self) -> None:
        super().__init__(operators=_OPERATORS, functions=FUNCTIONS, names={})
        for node in set(self.nodes) - {*_LEAVES, *_INNER}:
            del self.nodes[node]
        self.nodes[ast.List] = self.nodes[ast.Tuple] = self._eval_items

    def value(self, tree: ast.expr) -> Any:
        return self._eval(tree)

    def _eval_items(self, node: ast.List | ast.Tuple) -> list[Any]:
        return [self._eval(item) for item in node.elts]

    def _eval_name(self, node: ast.Name) -> Any:
        try:
            return self.names[node.id]
        except KeyError:
            raise ExpressionError(f"unknown name `{node.id}`{nearest(node.id, self.names)}") from None
