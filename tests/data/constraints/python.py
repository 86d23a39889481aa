"""Writes python.json: expressions of integers, floats and strings with what Python makes of them.

    python3 tests/data/constraints/python.py > tests/data/constraints/python.json

Each expression is written twice: as a constraint, and as Python, whose own parser and numbers evaluate it. `Number`
has the rules that docs/candidates.md states: integers of 64 bits, division that drops the fraction, finite floats.
"""

import json
import math
import random

COUNT = 600


class Number:
    def __init__(self, value):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ArithmeticError("beyond 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise ArithmeticError("not finite")
        self.value = value

    def _with(self, other, of_integers, of_floats):
        a, b = self.value, other.value
        if isinstance(a, int) and isinstance(b, int):
            return Number(of_integers(a, b))
        return Number(of_floats(float(a), float(b)))

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b, lambda a, b: a * b)

    def __truediv__(self, other):
        return self._with(other, _quotient, lambda a, b: a / b)

    def __mod__(self, other):
        return self._with(other, lambda a, b: a - b * _quotient(a, b), math.fmod)

    def __pow__(self, other):
        if other.value < 0 or abs(self.value) > 1 and other.value > 64:
            raise ArithmeticError("negative, or beyond 64 bits")
        return Number(self.value ** (other.value if abs(self.value) > 1 else min(other.value, 2 - other.value % 2)))

    def __neg__(self):
        return Number(-self.value)

    def _key(self, other):
        mixed = type(self.value) is not type(other.value)
        return (float(self.value), float(other.value)) if mixed else (self.value, other.value)

    def __eq__(self, other):
        a, b = self._key(other)
        return a == b

    def __lt__(self, other):
        a, b = self._key(other)
        return a < b

    def __le__(self, other):
        a, b = self._key(other)
        return a <= b


def _quotient(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


# an expression is (its text, the same in Python, how strongly it binds)
ATOM = 9


def inside(expression, least):
    text, python, power = expression
    return (text, python) if power >= least else (f"({text})", f"({python})")


def number(draw, depth, integers=False):
    if depth == 0 or draw.random() < 0.2:
        if draw.random() < 0.5:
            name = draw.choice(["m", "n", "p.k"] if integers else ["m", "n", "p.k", "f"])
            return name, name.replace(".", "_"), ATOM
        value = draw.choice([0, 1, 2, 3, 7, 16, 63, 1000, 2**53 + 1, 2**63 - 1])
        if not integers and draw.random() < 0.3:
            value = draw.choice([0.5, 2.0, 0.1, 1e300, 9007199254740992.0])
        return repr(value), f"Number({value!r})", ATOM
    kind = draw.choice(["+", "-", "*", "/", "%", "+", "-", "*", "/", "%", "**", "-a", "min", "max"])
    deeper = lambda integers=integers: number(draw, depth - 1, integers)
    if kind in ("+", "-", "*", "/", "%"):
        power = 5 if kind in "+-" else 6
        (a, python_a), (b, python_b) = inside(deeper(), power), inside(deeper(), power + 1)
        return f"{a} {kind} {b}", f"{python_a} {kind} {python_b}", power
    if kind == "**":
        # to the right; integers only, since the last digit of a float's power is the C library's
        (a, python_a), (b, python_b) = inside(deeper(True), 8), inside(deeper(True), 7)
        return f"{a} ** {b}", f"{python_a} ** {python_b}", 7
    if kind == "-a":
        # Python's minus binds weaker than its `**`
        a, python_a = inside(deeper(), ATOM)
        return f"-{a}", f"(-{python_a})", 8
    (a, python_a, _), (b, python_b, _) = deeper(True), deeper(True)
    return f"{kind}({a}, {b})", f"{kind}({python_a}, {python_b})", ATOM


def boolean(draw, depth):
    if depth == 0 or draw.random() < 0.3:
        compare = draw.choice(["==", "!=", "<", "<=", ">", ">="])
        if draw.random() < 0.15:
            a, b = (draw.choice(["s", "'a'", "'xla'", "'é'", "''"]) for _ in range(2))
            return f"{a} {compare} {b}", f"{a} {compare} {b}", 4
        (a, python_a), (b, python_b) = (inside(number(draw, 3), 5) for _ in range(2))
        return f"{a} {compare} {b}", f"{python_a} {compare} {python_b}", 4
    kind = draw.choice(["&&", "||", "!"])
    if kind == "!":
        a, python_a, _ = boolean(draw, depth - 1)
        return f"!({a})", f"(not ({python_a}))", 8
    power, word = (2, "and") if kind == "&&" else (1, "or")
    (a, python_a), (b, python_b) = inside(boolean(draw, depth - 1), power), inside(boolean(draw, depth - 1), power + 1)
    return f"{a} {kind} {b}", f"{python_a} {word} {python_b}", power


def main():
    draw = random.Random(14)
    rows = []
    while len(rows) < COUNT:
        text, python, _ = boolean(draw, 2)
        if len(text) > 110:
            continue
        values = {
            "m": draw.choice([0, 1, 2, 3, 64, -7, 2**63 - 1, -(2**63)]),
            "n": draw.choice([0, 1, 5, 128, -64]),
            "p.k": draw.choice([1, 3, 256]),
            "f": draw.choice([0.0, 0.5, -1.25, 3.0, 0.1]),
            "s": draw.choice(["", "a", "xla", "é"]),
        }
        known = {name.replace(".", "_"): v if name == "s" else Number(v) for name, v in values.items()}
        try:
            expected = eval(python, {"Number": Number, "min": min, "max": max}, known)
        except (ArithmeticError, ValueError):
            expected = None
            if draw.random() < 0.5:
                continue
        rows.append({"expression": text, "values": values, "python": bool(expected) if expected is not None else None})
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


main()
