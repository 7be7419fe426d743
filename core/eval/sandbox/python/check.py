"""
Grades by a `check(candidate)` function without letting it meet the tested code.

`record` runs the check on the reference solution and notes the arguments of every call. The tested
code is then called with them elsewhere, and `replay` runs the check on the results.
"""

import random


def record(program, test, entry):
    """The encoded argument lists of all calls, in order."""
    space = _space(program, test)
    reference = space[entry]
    calls = []

    def candidate(*arguments):
        calls.append(encode(list(arguments)))
        return reference(*arguments)

    random.seed(0)
    space["check"](candidate)
    return calls


def replay(program, test, calls, results):
    """Raises unless the check accepts the encoded results."""
    space = _space(program, test)
    pairs = iter(list(zip(calls, results)))

    def candidate(*arguments):
        call, result = next(pairs)
        assert encode(list(arguments)) == call, "the check asked something else"
        return decode(result)

    random.seed(0)
    space["check"](candidate)
    return True


def _space(program, test):
    space = {}
    exec(program + "\n" + test, space)
    return space
