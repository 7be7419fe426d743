"""Renders chat templates with transformers: JSON lines of template and variables in, texts or null out."""
import json
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

for line in sys.stdin:
    request = json.loads(line)
    try:
        text = _compile_jinja_template(request["template"]).render(**request["variables"])
    except Exception:
        text = None
    print(json.dumps(text))
