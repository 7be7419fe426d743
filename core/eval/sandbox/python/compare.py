"""
Decides whether a result is right, by the rules of EvalPlus (evalplus/eval/__init__.py).

Once an expected value was a float, the tolerance of 1e-6 that it brings stays for the task's later
inputs, whatever their type.

Results may come from a hostile program: they are data, and whatever cannot be read is wrong.
"""

import cmath
import json
import math

_FLOAT_ATOL = 1e-6
_RELATIVE = 1e-7
# Integers beyond these have no numeric dtype.
_LEAST, _MOST = -(2**63), 2**64 - 1
_had_floats = False


class _Like(Unknown):
    """Equal only to its like: iterators and ranges by type and content, long values by their hash."""

    def __init__(self, tag, body):
        self.items, self.key = (), None
        if tag == "n":
            self.items = decode_tree(body[1], _Like)
            self.key = body[0], self.items
        elif tag == "h":
            self.key = body[1:]

    def __eq__(self, other):
        return type(other) is _Like and self.key is not None and self.key == other.key

    def __hash__(self):
        return id(self) if self.key is None else hash(self.key[0])

    def __iter__(self):
        return iter(self.items)


def compare(entry, atol, expected, arguments, result):
    """
    Raises unless a result is right. `expected` are the texts up to this input's that no earlier call
    has had, `arguments` is the JSON of the input.
    """
    global _had_floats
    _had_floats = _had_floats or any(_is_floats(decode(text)) for text in expected)
    atol = atol or _FLOAT_ATOL * _had_floats
    decode(result, _Like)
    arguments, wanted = json.loads(arguments), expected[-1]
    assert _is_right(entry, atol, arguments, wanted, result)


def _is_right(entry, atol, arguments, expected, result):
    actual, wanted = decode(result, _Like), decode(expected, _Like)
    try:
        rule = _RULES.get(entry)
        if rule(actual, wanted, arguments, atol) if rule else actual == wanted:
            return True
        # The zero of a polynomial has had its tolerance.
        if entry == "find_zero" or not atol or _type(result, actual) != _type(expected, wanted):
            return False
        return _length(actual) == _length(wanted) and _allclose(actual, wanted, atol)
    except Exception:
        return False


def _type(text, value):
    """The name of a value's own type, which decoding drops."""
    return text.split('"')[3] if text.startswith('{"k":["') else type(value).__name__


def _length(value):
    return len(value) if isinstance(value, (list, tuple)) else None


def _is_floats(value):
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(type(item) is float for item in value)
    return type(value) is float


def _allclose(actual, wanted, atol):
    """`numpy.allclose` without numpy: of nested lists and tuples of one shape, of numbers only."""
    shapes = _shape(actual), _shape(wanted)
    if None in shapes:
        return False
    pairs = _pairs(actual, wanted, *map(len, shapes))
    return all(_is_close(one, other, atol) for one, other in pairs)


def _shape(value):
    """The shape of the array that numpy makes of a value, None for one of objects."""
    if isinstance(value, (list, tuple)):
        inner = {_shape(item) for item in value} or {()}
        return None if None in inner or len(inner) > 1 else (len(value), *inner.pop())
    if type(value) is int:
        return () if _LEAST <= value <= _MOST else None
    return () if isinstance(value, (bool, float, complex)) else None


def _pairs(one, other, rank, other_rank):
    """Elements side by side, broadcast; raises where the shapes do not fit."""
    if rank == other_rank == 0:
        yield one, other
    elif rank > other_rank:
        for item in one:
            yield from _pairs(item, other, rank - 1, other_rank)
    elif rank < other_rank:
        for item in other:
            yield from _pairs(one, item, rank, other_rank - 1)
    else:
        if len(one) == 1:
            one = one * len(other)
        elif len(other) == 1:
            other = other * len(one)
        for item, its_other in zip(one, other, strict=True):
            yield from _pairs(item, its_other, rank - 1, other_rank - 1)


def _is_close(actual, wanted, atol):
    actual, wanted = complex(actual), complex(wanted)
    if cmath.isfinite(actual) and cmath.isfinite(wanted):
        # `abs` raises for the largest complex numbers.
        return _size(actual - wanted) <= atol + _RELATIVE * _size(wanted)
    return actual == wanted


def _size(number):
    return math.hypot(number.real, number.imag)


def _polynomial(coefficients, x):
    return sum([factor * math.pow(x, power) for power, factor in enumerate(coefficients)])


def _surface(edge, height):
    """The height as that of the apex over the base."""
    slant = math.sqrt((edge / 2) ** 2 + height**2)
    return round(edge**2 + 4 * (edge * slant) / 2)


def _digit_distance(*numbers):
    """The distance with both numbers padded with zeros to one length."""
    texts = [str(number) for number in numbers]
    padded = [text.zfill(max(map(len, texts))) for text in texts]
    return sum(abs(int(one) - int(other)) for one, other in zip(*padded))


def _as_sets(actual, wanted, arguments, atol):
    return set(actual) == set(wanted)


def _found(actual, wanted, arguments, atol):
    """The reference's result matters only for whether there is one."""
    return (actual if type(actual) is bool else actual is not None) == (wanted is not None)


_SET_LIKE = (
    "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum "
    "intersection_array find_dissimilar Diff"
).split()

# By entry point: whether a result counts as equal.
_RULES = {
    # HumanEval/32: any zero of the polynomial.
    "find_zero": lambda actual, wanted, arguments, atol: (
        abs(_polynomial(arguments[0], actual)) <= atol
    ),
    "are_equivalent": lambda actual, wanted, arguments, atol: True,
    "sum_div": lambda actual, wanted, arguments, atol: actual in (wanted, 0),
    "surface_Area": lambda actual, wanted, arguments, atol: (
        actual == wanted or abs(actual - _surface(*arguments)) <= atol
    ),
    "digit_distance_nums": lambda actual, wanted, arguments, atol: (
        actual in (wanted, _digit_distance(*arguments))
    ),
    **dict.fromkeys(_SET_LIKE, _as_sets),
    **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), _found),
}
