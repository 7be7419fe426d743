"""
Restores what JSON took from the inputs of MBPP: tuples, sets and complex numbers.

The rules go by task number; every other task takes its inputs as they are.
"""


def _each(change):
    return lambda arguments: [change(argument) for argument in arguments]


def _elements(change):
    return lambda argument: [change(item) for item in argument]


def _nested(value):
    return tuple(_nested(item) for item in value) if isinstance(value, list) else value


def _dictionary(arguments):
    table, *rest = arguments
    return [{key: tuple(value) for key, value in table.items()}, *rest]


_RULES = (
    (
        "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
        _each(tuple),
    ),
    ("63 64 70 94 120 237 272 299 400 409 417 438 473 614 780", _each(_elements(tuple))),
    ("75 413 444 753", lambda given: [[tuple(item) for item in given[0]], *given[1:]]),
    ("106 750", lambda given: [given[0], tuple(given[1]), *given[2:]]),
    ("250 405 446 617 720 763 808 307", lambda given: [tuple(given[0]), *given[1:]]),
    ("259 401 445", _each(lambda argument: tuple(tuple(item) for item in argument))),
    (
        "278",
        _each(lambda argument: tuple(tuple(i) if isinstance(i, list) else i for i in argument)),
    ),
    ("722", _dictionary),
    ("580 615 791", _nested),
    (
        "115",
        _each(_elements(lambda item: set(item) if isinstance(item, list) and item else {})),
    ),
    ("124", lambda given: (float(given[0]), complex(given[1]))),
    ("252", _each(complex)),
)
_BY_TASK = {task: rule for tasks, rule in _RULES for task in tasks.split()}


def rebuild(task, arguments):
    """The argument list of MBPP task number `task`, which is text."""
    rule = _BY_TASK.get(task)
    return rule(arguments) if rule else arguments
