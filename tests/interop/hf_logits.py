"""Logits and greedy tokens of a folder as Hugging Face transformers computes them, as one JSON line.

python hf_logits.py FOLDER IDS_JSON [--new N]
"""
import argparse
import json

import torch
import transformers
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("ids", type=json.loads)
parser.add_argument("--new", type=int, default=0)
options = parser.parse_args()
model, info = AutoModelForCausalLM.from_pretrained(
    options.folder, trust_remote_code=True, dtype=torch.float32, output_loading_info=True
)
ids = torch.tensor(options.ids)
with torch.no_grad():
    logits = model.eval()(ids).logits
    tokens = model.generate(
        ids[:1], attention_mask=torch.ones_like(ids[:1]), max_new_tokens=options.new, do_sample=False,
        eos_token_id=model.config.vocab_size, pad_token_id=0,
    )[0, ids.shape[1]:].tolist() if options.new > 0 else []
missing, unexpected = (sorted(info[kind]) for kind in ("missing_keys", "unexpected_keys"))
print(json.dumps({
    "version": transformers.__version__, "missing": missing, "unexpected": unexpected,
    "logits": logits.flatten().tolist(), "tokens": tokens,
}))
