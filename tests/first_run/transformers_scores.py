"""Log-probabilities of a continuation's tokens by Hugging Face transformers, as a JSON list.

python transformers_scores.py MODEL PROMPT CONTINUATION
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

name, prompt, continuation = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
ids = tokenizer(prompt + continuation, return_tensors="pt").input_ids
count = ids.shape[1] - len(tokenizer(prompt).input_ids)
with torch.no_grad():
    logprobs = model(ids).logits[0].double().log_softmax(-1)
chosen = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
print(json.dumps(chosen[-count:].tolist()))
