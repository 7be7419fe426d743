"""Prints logits of token rows and ids of texts, as transformers computes them from a folder."""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, ids, texts = sys.argv[1], json.loads(sys.argv[2]), json.load(open(sys.argv[3]))
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.no_grad():
    logits = model.eval()(torch.tensor(ids)).logits
encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
print(json.dumps({"logits": logits.flatten().tolist(), "ids": encoded}))
