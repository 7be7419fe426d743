"""
How Python values cross the border of the sandbox.

A value becomes one line of JSON: None, booleans, small integers, finite floats, strings and lists
stand for themselves, everything else is an object with one letter. The letters are read again by
`decode`. Subclasses lose every method of their own: only what the builtin type holds is written,
so that an `__eq__` made by the tested code never meets the comparison.
"""

import hashlib
import io
import itertools
import json

_quote = json.dumps
_whole = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_float = float.__repr__
_SMALL, _LARGE = -(2**63), 2**63 - 1
_sha256 = hashlib.sha256
_CHARACTERS = 1 << 20
_NAMED = ("range", "deque", "mappingproxy", "slice")
_STREAMS = (
    "generator map filter zip enumerate reversed dict_keys dict_values dict_items "
    "list_iterator tuple_iterator set_iterator list_reverseiterator"
).split()


def encode(value):
    """The value as text; equal builtin values of equal types give equal text."""
    text, size, digest = io.StringIO(), 0, None
    for part in _parts(value):
        if digest is not None:
            digest.update(part.encode())
            continue
        size += text.write(part)
        if size > _CHARACTERS:
            # A hash is enough to compare longer values.
            digest = _sha256(text.getvalue().encode())
    if digest is None:
        return text.getvalue()
    return '{"h":[%s,"%s"]}' % (_quote(type(value).__name__), digest.hexdigest())


def _parts(value):
    kind = type(value)
    if value is None:
        yield "null"
    elif kind is bool:
        yield "true" if value else "false"
    elif kind is int:
        yield str(value) if _SMALL <= value <= _LARGE else '{"x":"%x"}' % value
    elif kind is str:
        yield _quote(value)
    elif kind is float:
        text = _float(value)
        yield '{"f":"%s"}' % text if text[-1] in "nf" else text
    elif kind is list:
        text = _plain(value)
        yield from ("[", text, "]") if text is not None else _sequence("[", value, "]")
    elif kind is tuple:
        text = _plain(value)
        if text is not None:
            yield '{"t":[' + text + "]}"
        else:
            yield from _sequence('{"t":[', value, "]}")
    elif kind is set or kind is frozenset:
        tag = '{"s":[' if kind is set else '{"z":['
        yield from (tag, ",".join(sorted(encode(item) for item in value)), "]}")
    elif kind is dict:
        yield from _sequence('{"d":[', ([key, item] for key, item in value.items()), "]}")
    elif kind is bytes:
        yield '{"b":"%s"}' % value.hex()
    elif kind is complex:
        yield from _sequence('{"c":[', (value.real, value.imag), "]}")
    else:
        yield from _other(kind, value)


def _plain(items):
    """The text of items that JSON writes as we do; None for any others."""
    kinds = set(map(type, items))
    if kinds <= {str, bool, type(None)}:
        return _whole(items)[1:-1]
    if kinds <= {int, float, bool}:
        try:
            if int not in kinds or (_SMALL <= min(items) and max(items) <= _LARGE):
                return _whole(items)[1:-1]
        except ValueError:
            pass  # not finite
    return None


def _sequence(opening, items, closing):
    yield opening
    separator = ""
    for item in items:
        yield separator
        yield from _parts(item)
        separator = ","
    yield closing


def _other(kind, value):
    name = _quote("%s.%s" % (kind.__module__, kind.__qualname__))
    for base, plain in _BASES:
        if issubclass(kind, base):
            yield from _sequence('{"k":[%s,' % name, [plain(value)], "]}")
            return
    if kind.__module__ == "numpy" and hasattr(kind, "item") and not getattr(value, "shape", 0):
        yield from _sequence('{"k":[%s,' % name, [value.item()], "]}")
    elif kind.__name__ in _STREAMS:
        yield from _sequence('{"n":[%s,' % name, [list(itertools.islice(value, 100001))], "]}")
    elif kind.__name__ in _NAMED:
        yield from _sequence('{"n":[%s,' % name, [repr(value)], "]}")
    elif kind.__module__ in ("fractions", "decimal") and _exact(value) is not None:
        yield from _sequence('{"k":[%s,' % name, [_exact(value)], "]}")
    else:
        yield '{"o":%s}' % name


def _exact(value):
    """The number of a builtin type that equals a fraction or decimal, if there is one."""
    try:
        return next(plain for plain in (int(value), float(value)) if plain == value)
    except (StopIteration, ValueError, OverflowError):
        return None


# The base's own methods, never those of the subclass.
_BASES = (
    (bool, bool),
    (int, int.__index__),
    (float, float.__float__),
    (complex, lambda value: complex.__complex__(value)),
    (str, str.__str__),
    (bytes, bytes.__bytes__ if hasattr(bytes, "__bytes__") else bytes),
    (bytearray, lambda value: bytes.fromhex(bytearray.hex(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(list(tuple.__iter__(value)))),
    (dict, lambda value: dict(list(dict.items(value)))),
    (set, lambda value: set(list(set.__iter__(value)))),
    (frozenset, lambda value: frozenset(list(frozenset.__iter__(value)))),
)


class Unknown:
    """Stands for a value of which only the type's name crossed the border."""

    def __init__(self, tag, body):
        pass

    __hash__ = object.__hash__

    def __eq__(self, other):
        return False


def decode(text, other=Unknown):
    """
    The value behind a text; a subclass comes back as its builtin base, and `other(tag, body)` stands for
    values that have none.
    """
    return decode_tree(json.loads(text), other)


def decode_tree(tree, other):
    """The value behind parsed JSON."""
    if type(tree) is list:
        return [decode_tree(item, other) for item in tree]
    if type(tree) is not dict:
        return tree
    ((tag, body),) = tree.items()
    if tag == "x":
        return int(body, 16)
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "k":
        return decode_tree(body[1], other)
    if tag in "noh":
        return other(tag, body)
    items = [decode_tree(item, other) for item in body]
    if tag == "d":
        return {key: value for key, value in items}
    return {"t": tuple, "s": set, "z": frozenset, "c": lambda pair: complex(*pair)}[tag](items)
