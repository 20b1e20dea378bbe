"""A law's text, such as ``E + A / width^alpha``, as a SymPy expression; nothing in the text can run code."""

from __future__ import annotations

import ast
import math
from typing import Any

from scaling.errors import AnalysisError, nearest

MAX_LENGTH = 1000
MAX_NODES = 400
ONE_ARGUMENT = ("exp", "log", "log2", "log10", "sqrt", "tanh", "expm1", "log1p", "softplus", "harmonic", "normal_max")
TWO_ARGUMENTS = ("min", "max", "log_rising")
FUNCTIONS = (*ONE_ARGUMENT, *TWO_ARGUMENTS)


def parse_formula(text: str) -> Any:
    """The SymPy expression of `text`.

    Allowed: numbers, names, ``+ - * / ** ^`` (both of the last two are powers), parentheses and the functions
    exp, log, log2, log10, sqrt, tanh, expm1, log1p, softplus(x) = log(1 + e^x), min(a, b), max(a, b); and of a number
    of draws n: harmonic(n) = 1 + 1/2 + … + 1/n, normal_max(n) = E[largest of n standard normals],
    log_rising(n, a) = log(Gamma(n + 1) Gamma(1 - a) / Gamma(n + 1 - a)). All symbols are real.

    Raises AnalysisError with the offending piece quoted.
    """
    if len(text) > MAX_LENGTH:
        raise AnalysisError(f"law formula of {len(text)} characters: at most {MAX_LENGTH} are read.")
    try:
        tree = ast.parse(text.replace("^", "**").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or "not an expression"
        raise AnalysisError(f"law {text!r}: {reason}.") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise AnalysisError(f"law {text[:40]!r}…: more than {MAX_NODES} terms.")
    expression = _Builder(text).build(tree.body)
    if not _is_real(expression):
        raise AnalysisError(f"law {text!r} divides by zero or is not real: it is not a finite number anywhere.")
    return expression


def _is_real(expression: Any) -> bool:
    import sympy

    return not expression.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo, sympy.I)


class _Builder:
    def __init__(self, text: str) -> None:
        import sympy

        self.text = text
        self.sympy = sympy

    def build(self, node: ast.expr) -> Any:
        # numbers are folded as floats, so that 9**9**9 overflows at once in place of growing an integer
        if not any(isinstance(part, ast.Name) for part in ast.walk(node)):
            return self.number(self.fold(node))
        match node:
            case ast.Name(id=name) if name in FUNCTIONS:
                raise AnalysisError(f"law {self.text!r}: {name!r} is a function; write {name}(…).")
            case ast.Name(id=name):
                return self.sympy.Symbol(name, real=True)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.build(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.build(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.build(left), self.build(right), node)
            case ast.Call(func=ast.Name(id=name), args=[*arguments], keywords=[]):
                return self.call(name, [self.build(a) for a in arguments])
            case _:
                raise self.refuse(node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.Pow():
                return left**right
            case _:
                raise self.refuse(node)

    def call(self, name: str, arguments: list[Any]) -> Any:
        if name not in FUNCTIONS:
            raise AnalysisError(f"law {self.text!r}: no function {name!r}.{nearest(name, FUNCTIONS)}")
        need = 2 if name in TWO_ARGUMENTS else 1
        if len(arguments) != need:
            count = "one argument" if need == 1 else "two arguments"
            raise AnalysisError(f"law {self.text!r}: {name} takes {count}, not {len(arguments)}.")
        first = arguments[0]
        match name:
            case "log2" | "log10":
                return self.sympy.log(first) / math.log(float(name[3:]))
            case "min" | "max":
                below = self.sympy.Le(first, arguments[1])
                low, high = arguments if name == "min" else arguments[::-1]
                return self.sympy.Piecewise((low, below), (high, True))
            case "expm1" | "log1p":
                from sympy.codegen import cfunctions

                return getattr(cfunctions, name)(first)
            case "softplus" | "harmonic" | "normal_max" | "log_rising":
                from scaling import special

                return special.function(name)(*arguments)
        return getattr(self.sympy, name)(first)

    def fold(self, node: ast.expr) -> float:
        try:
            value = self.folded(node)
        except (OverflowError, ZeroDivisionError, ValueError):
            value = math.nan
        if isinstance(value, complex) or not math.isfinite(value):
            raise AnalysisError(f"law {self.text!r}: {ast.unparse(node)!r} is not a finite number.")
        return value

    def folded(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=bool()):
                raise self.refuse(node)
            case ast.Constant(value=int() | float() as value):
                return float(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.folded(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.folded(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return float(self.binary(op, self.folded(left), self.folded(right), node))
            case _:
                raise self.refuse(node)

    def number(self, value: float) -> Any:
        whole = value.is_integer() and abs(value) < 2**53
        return self.sympy.Integer(int(value)) if whole else self.sympy.Float(value)

    def refuse(self, node: ast.AST) -> AnalysisError:
        return AnalysisError(
            f"law {self.text!r}: {ast.unparse(node)!r} is not allowed; a law is made of numbers, names, + - * / ^ "
            f"and {', '.join(FUNCTIONS)}."
        )
