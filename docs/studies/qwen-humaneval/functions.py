"""Functions with a docstring of a folder of Python files, one JSON text a line: functions.py FOLDER.

A function is written as a direct completion answers it: signature, docstring, body. Tests, packages of
others, methods and functions with decorators are left out.
"""

import ast
import json
import pathlib
import sys

SKIPPED = {"test", "tests", "idle_test", "lib2to3", "encodings", "site-packages", "dist-packages"}

library = pathlib.Path(sys.argv[1])
for path in sorted(library.rglob("*.py")):
    if SKIPPED & set(path.relative_to(library).parts):
        continue
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError):
        continue
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        if ast.get_docstring(node) and 2 <= len(node.body) and node.end_lineno - node.lineno <= 60:
            print(json.dumps({"text": ast.get_source_segment(source, node) + "\n"}))
