"""Logits of a folder as Hugging Face transformers computes them, as one JSON line.

python hf_logits.py FOLDER IDS_JSON
"""
import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

model, info = AutoModelForCausalLM.from_pretrained(
    sys.argv[1], trust_remote_code=True, dtype=torch.float32, output_loading_info=True
)
with torch.no_grad():
    logits = model.eval()(torch.tensor(json.loads(sys.argv[2]))).logits
missing, unexpected = (sorted(info[kind]) for kind in ("missing_keys", "unexpected_keys"))
print(json.dumps({
    "version": transformers.__version__, "missing": missing, "unexpected": unexpected,
    "logits": logits.flatten().tolist(),
}))
