"""Perplexity of a Llama model whose keys and values are rounded to 8 bits per head and token.

    python perplexity.py MODEL TEXT.jsonl [TEXT.jsonl ...]

MODEL is a folder that transformers opens, such as one of `parscale convert --model FILE.gguf`; rows
of the texts have a field `text`. `stored` rounds keys and values alone; `multiplied` also rounds
queries to 8 and attention weights to 16 bits, as products of integers need them. `channels` has one
scale per channel, fixed beforehand by the last rows of the last text.
"""
import json
import math
import sys

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import repeat_kv

ROWS, LENGTH = 4, 2048
rounding = "none"
largest = {}
"""Per layer, of keys and values: the largest magnitude of every channel."""


def rounded(x, scale=None):
    if scale is None:
        scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127
    return torch.round(x / scale).clamp(-127, 127) * scale


def by_channel(layer, *tensors):
    seen = [x.abs().amax((0, 2), keepdim=True) for x in tensors]
    if rounding == "calibrate":
        before = largest.get(layer, seen)
        largest[layer] = [torch.maximum(a, b) for a, b in zip(before, seen)]
        return tensors
    return [rounded(x, top / 127) for x, top in zip(tensors, largest[layer])]


def attention(module, q, k, v, mask, **_):
    if rounding in ("calibrate", "channels"):
        k, v = by_channel(module.layer_idx, k, v)
    elif rounding != "none":
        k, v = rounded(k), rounded(v)
    if rounding == "multiplied":
        q = rounded(q)
    k, v = (repeat_kv(x, module.num_key_value_groups) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, -1e30)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    if rounding == "multiplied":
        weights = torch.round(weights * 65535) / 65535
    out = weights @ v / weights.sum(-1, keepdim=True)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("rounded", attention)
folder, *files = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32, attn_implementation="rounded"
).eval()


def rows_of(file):
    with open(file, encoding="utf-8") as lines:
        text = "\n\n".join(json.loads(line)["text"] for line in lines)
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    return [ids[i : i + LENGTH] for i in range(0, len(ids) - LENGTH + 1, LENGTH)]


def loss(rows):
    with torch.no_grad():
        logits = [model(row[None]).logits[0, :-1] for row in rows]
    each = [torch.nn.functional.cross_entropy(x, row[1:]) for x, row in zip(logits, rows)]
    return sum(each).item() / len(rows)


rounding = "calibrate"
loss(rows_of(files[-1])[-ROWS:])
for file in files:
    rows, losses = rows_of(file)[:ROWS], {}
    for rounding in ("none", "stored", "multiplied", "channels"):
        losses[rounding] = loss(rows)
        more = math.exp(losses[rounding] - losses["none"]) - 1
        print(f"{file} {rounding}: {losses[rounding]:.5f} nats, perplexity {more:+.3%}", flush=True)
