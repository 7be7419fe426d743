"""
Finds the program in a model's answer: the longest text that parses, and of it only the imports and
the definitions that the entry point needs.

The rules are those of EvalPlus, which reads the text with a tree-sitter grammar. This version uses
Python's own parser. One surprise is kept: the name of an assignment is its first identifier that
stands alone on either side, so `x.y = z` defines `z`.
"""

import ast
import io
import re
import tokenize

_ANSI = re.compile(r"\x1b(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")


def sanitize(text, entry):
    """The sanitised program; without an entry point nothing of what parses is left out."""
    text = _ANSI.sub("", text)
    try:
        longest = _longest(text)
        # The grammar reads a single line whatever its indent is.
        longest = longest if _parses(longest) else longest.strip().rstrip("\\")
        kept = _needed(longest, entry).strip() if entry else ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        kept = ""
    return kept or _longest(text)


def _parses(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _longest(text):
    """Of all ranges of two lines or more that parse, the first with the most lines not blank."""
    lines = text.split("\n")
    # Lines not blank before each position.
    before = [0]
    for line in lines:
        before.append(before[-1] + bool(line.strip()))
    best, first, last = 0, 0, 0
    for start in range(len(lines)):
        if before[-1] - before[start] <= best:
            break
        found = -1
        # From the longest down: the first that parses has the most lines.
        for end in range(len(lines) - 1, start, -1):
            count = before[end + 1] - before[start]
            if count <= best and count != found or count < found:
                break
            if _parses("\n".join(lines[start : end + 1])):
                best, found, first, last = count, count, start, end
    return "\n".join(lines[first : last + 1])


def _needed(text, entry):
    lines = text.encode().split(b"\n")
    imports, definitions = [], {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            imports.append(_source(lines, node))
        elif isinstance(node, ast.ImportFrom):
            if node.module != "__future__":
                imports.append(_source(lines, node))
        else:
            name = _name(node, lines)
            if name is not None and name not in definitions:
                definitions[name] = _source(lines, node), _identifiers(node, _source(lines, node))
    reached, waiting = {entry}, [entry]
    while waiting:
        for name in definitions.get(waiting.pop(), ("", ()))[1]:
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    kept = [source for name, (source, _) in definitions.items() if name in reached]
    return "".join(part + "\n" for part in imports + kept)


def _name(node, lines):
    """The name a top-level statement defines, None if it is dropped."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        returns = any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        return node.name if returns and not node.decorator_list else None
    if isinstance(node, ast.ClassDef):
        return None if node.decorator_list else node.name
    if isinstance(node, ast.Assign):
        sides = [node.targets[0], *([node.value] if len(node.targets) == 1 else [])]
    elif isinstance(node, ast.AnnAssign):
        sides = [node.target, node.value]
    else:
        return None
    return next((side.id for side in sides if _stands_alone(side, lines)), None)


def _stands_alone(side, lines):
    """Whether a side of an assignment is a name, and not one in parentheses."""
    if not isinstance(side, ast.Name):
        return False
    return not lines[side.lineno - 1][: side.col_offset].rstrip().endswith(b"(")


def _source(lines, node):
    """The node's text, with the comments that follow it in its own block and on its last line."""
    first, last, end = node.lineno - 1, node.end_lineno - 1, node.end_col_offset
    body = getattr(node, "body", None)
    if body:
        if lines[last][end:].lstrip().startswith(b"#"):
            end = len(lines[last])
        if body[0].lineno > node.lineno:
            last, end = _comments_after(lines, last, end, _indent(lines[body[0].lineno - 1]))
    if first == last:
        return lines[first][node.col_offset : end].decode()
    parts = [lines[first][node.col_offset :], *lines[first + 1 : last], lines[last][:end]]
    return b"\n".join(parts).decode()


def _comments_after(lines, last, end, indent):
    """Where a block ends that also holds the comments behind it that are indented like it."""
    for number in range(last + 1, len(lines)):
        line = lines[number].strip()
        if line.startswith(b"#") and _indent(lines[number]) >= indent:
            last, end = number, len(lines[number])
        elif line:
            break
    return last, end


def _indent(line):
    """Columns before the text; the grammar counts eight for a tab."""
    spaces = line[: len(line) - len(line.lstrip())]
    return sum(8 if space == ord("\t") else 1 for space in spaces)


def _identifiers(node, source):
    """Every identifier in the text; the tree adds those inside formatted strings."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    names.update(inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute))
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                names.add(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass
    return names
