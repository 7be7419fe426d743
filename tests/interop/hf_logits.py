"""Logits and greedy tokens of a folder as Hugging Face transformers computes them, as one JSON line.

python hf_logits.py FOLDER IDS_JSON [--own-cache] [--scale-prefixes X] [--new N]

A ParScale folder brings the official model file, which was written for transformers 4.53. Two names are
put in place for later versions: one it imports, and the cache as it was then, a list of keys and values
per layer. Without the second (--own-cache) later versions drop the prefixes without a word.
"""
import argparse
import importlib.metadata
import json
from typing import TypedDict

installed = importlib.metadata.version
# transformers 4.57 refuses a newer hub client, of which nothing is used here.
importlib.metadata.version = lambda name: (
    "0.36.0" if name.replace("_", "-") == "huggingface-hub" and installed("transformers").startswith("4.") else installed(name)
)

import torch  # noqa: E402
import transformers.cache_utils  # noqa: E402
import transformers.utils  # noqa: E402


class ListCache(transformers.cache_utils.Cache):
    """Keys and values of each layer in a list, as DynamicCache was up to transformers 4.53."""

    is_compileable = False
    layers = ()

    def __init__(self, *_args, **_kwargs):
        self.key_cache, self.value_cache = [], []

    def update(self, keys, values, layer, _options=None):
        if layer == len(self.key_cache):
            self.key_cache.append(keys)
            self.value_cache.append(values)
        else:
            self.key_cache[layer] = torch.cat([self.key_cache[layer], keys], dim=-2)
            self.value_cache[layer] = torch.cat([self.value_cache[layer], values], dim=-2)
        return self.key_cache[layer], self.value_cache[layer]

    def get_seq_length(self, layer=0):
        return self.key_cache[layer].shape[-2] if layer < len(self.key_cache) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("ids", type=json.loads)
    parser.add_argument("--own-cache", action="store_true")
    parser.add_argument("--scale-prefixes", type=float)
    parser.add_argument("--new", type=int, default=0)
    options = parser.parse_args()
    official = "auto_map" in json.load(open(f"{options.folder}/config.json"))
    if official and not hasattr(transformers.utils, "LossKwargs"):
        transformers.utils.LossKwargs = TypedDict("LossKwargs", {}, total=False)
    if official and not options.own_cache:
        transformers.cache_utils.DynamicCache = ListCache
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(
        options.folder,
        trust_remote_code=official,
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    model.eval()
    if options.scale_prefixes is not None:
        for name, parameter in model.named_parameters():
            if ".prefix_" in name:
                parameter.data *= options.scale_prefixes
    ids = torch.tensor(options.ids)
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        tokens = []
        row = ids[:1]
        for _ in range(options.new):
            row = torch.cat([row, model(input_ids=row).logits[:, -1:].argmax(-1)], dim=1)
            tokens.append(int(row[0, -1]))
    print(json.dumps({
        "version": transformers.__version__,
        "missing": sorted(loading["missing_keys"]),
        "unexpected": sorted(loading["unexpected_keys"]),
        "logits": logits.flatten().tolist(),
        "tokens": tokens,
    }))


main()
