"""Holds modeling_parscale.py against golden values: one line of JSON, what differed most and what failed.

    python3 transformers.py FOLDER [GOLDEN]

FOLDER holds a model as parscale writes it; GOLDEN the expected.json and expected.safetensors of the same model.
"""
import json
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, pipeline, set_seed

folder, golden = sys.argv[1], sys.argv[2]
expected = json.load(open(f"{golden}/expected.json"))
tensors = load_file(f"{golden}/expected.safetensors")
failures, worst = [], {}


def check(name, holds):
    if not holds:
        failures.append(name)


def close(name, actual, wanted):
    difference = (actual.float() - wanted.float()).abs().max().item()
    kind = name.split(":")[0]
    worst[kind] = max(worst.get(kind, 0), difference)


def load(**options):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **{"dtype": torch.float32, **options}
    )
    check("every tensor is loaded", not info["missing_keys"] and not info["unexpected_keys"])
    return model.eval()


def cache_of(output):
    return output["cache"] if "cache" in output else output["past_key_values"]


def cached_logits(model, ids, cache=None):
    """Logits with one token a step, after a first step of three."""
    logits = []
    for chunk in [ids[:, :3], *ids[:, 3:].split(1, dim=1)]:
        output = model(chunk, use_cache=True, **({} if cache is None else {"past_key_values": cache}))
        cache = cache_of(output)
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


torch.manual_seed(0)
with torch.no_grad():
    for implementation in ("eager", "sdpa"):
        model = load(attn_implementation=implementation)
        for case in ("single", "pair", "token"):
            ids = torch.tensor(expected["cases"][case]["ids"])
            close(f"logits:{case}", model(ids).logits, tensors[f"{case}.logits"])
            if case != "token":
                close(f"cached:{case}", cached_logits(model, ids), tensors[f"{case}.logits"])
        ids, padding = (torch.tensor(expected["cases"]["padded"][key]) for key in ("ids", "left_padding"))
        mask = (torch.arange(ids.shape[1])[None] >= padding[:, None]).long()
        logits = model(ids, attention_mask=mask).logits
        close("padded", logits[mask.bool()], tensors["padded.logits"][mask.bool()])

        model.generation_config.eos_token_id = None
        greedy = {"do_sample": False, "pad_token_id": 0}
        prompts, outputs = expected["greedy"]["prompts"], expected["greedy"]["outputs"]
        for prompt, output in zip(prompts, outputs):
            row = torch.tensor([prompt])
            made = model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=len(output), **greedy)
            check("greedy", made[0, len(prompt):].tolist() == output)
        width = max(map(len, prompts))
        batch = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        for options in ({}, {"cache_implementation": "static"}):
            made = model.generate(batch, attention_mask=mask, max_new_tokens=len(outputs[0]), **greedy, **options)
            check(f"greedy in a batch {options}", made[:, width:].tolist() == outputs)
        for run in expected["beam"]:
            row = torch.tensor([run["prompt"]])
            made = model.generate(
                row, attention_mask=torch.ones_like(row), num_beams=run["beams"], num_return_sequences=len(run["outputs"]),
                max_new_tokens=run["max_new_tokens"], do_sample=False, length_penalty=1.0, early_stopping=False,
                eos_token_id=run["eos"], pad_token_id=0,
            )
            for row, output in zip(made[:, len(run["prompt"]):].tolist(), run["outputs"]):
                check("beams", row[: len(output["ids"])] == output["ids"])
        made = model.generate(batch, attention_mask=mask, max_new_tokens=8, do_sample=True, pad_token_id=0)
        check("sampling", made.shape[1] > width)

    generator = pipeline("text-generation", model=folder, trust_remote_code=True, dtype=torch.float32)
    options = {"max_new_tokens": 8, "do_sample": False}
    row = generator.tokenizer("Two streams", return_tensors="pt")
    made = model.generate(row.input_ids, attention_mask=row.attention_mask, pad_token_id=0, **options)
    text = generator.tokenizer.decode(made[0], skip_special_tokens=True)
    check("pipeline", generator("Two streams", **options)[0]["generated_text"] == text)

    half = load(dtype=torch.bfloat16)(torch.tensor(expected["cases"]["single"]["ids"])).logits.float()
    wanted = tensors["single.logits"]
    check("bfloat16", (half - wanted).norm() / wanted.norm() < 3e-2)

    with tempfile.TemporaryDirectory() as copy:
        model.save_pretrained(copy)
        again = AutoModelForCausalLM.from_pretrained(copy, trust_remote_code=True).state_dict()
        own = model.state_dict()
        check("save_pretrained", own.keys() == again.keys() and all(torch.equal(own[key], again[key]) for key in own))

gradients = load_file(f"{golden}/grads_full.safetensors")
case = expected["gradients"]
batch = {"input_ids": torch.tensor(case["ids"]), "labels": torch.tensor(case["labels"])}
for checkpointing in (False, True):
    model = load().train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model(**batch).loss.backward()
    for name, parameter in model.named_parameters():
        if name in gradients:
            scale = gradients[name].abs().max()
            close(f"gradients:{name}", parameter.grad / scale, gradients[name] / scale)

model = load()
for name, parameter in model.named_parameters():
    parameter.requires_grad = "prefix_" in name or "aggregate_layer" in name
before = {name: parameter.clone() for name, parameter in model.named_parameters()}
rows = [{key: value[i] for key, value in batch.items()} for i in range(len(batch["input_ids"]))]
set_seed(0)
with tempfile.TemporaryDirectory() as out:
    arguments = TrainingArguments(out, max_steps=1, learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True)
    Trainer(model, arguments, train_dataset=rows).train()
for name, parameter in model.named_parameters():
    check(f"Trainer: {name}", torch.equal(parameter, before[name]) != parameter.requires_grad)

print(json.dumps({"worst": worst, "failures": sorted(set(failures))}))
