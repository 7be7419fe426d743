"""ParScale for transformers: P streams of one language model, mixed per token (https://arxiv.org/abs/2505.10475).

Every sequence runs P times with the same weights. Stream p sees its own learned prefix, M keys and values in each
attention layer; after the final norm a small MLP weights the streams of every token, and their mean goes to the head.
So the model has the parameters of its backbone, plus 0.2% a stream, and computes P times as much.

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

Backbones are Qwen2, Qwen3 and Llama. Names of tensors are those of the authors' checkpoints. To train prefixes and
aggregator alone:

    for name, p in model.named_parameters(): p.requires_grad = "prefix_" in name or "aggregate_layer" in name

Written by parscale, MIT licence. Tried with transformers 4.57.6 and 5.24.0, attention "eager" and "sdpa".

Letters in comments: B sequences, P streams, T new tokens, S cached and new tokens, C hidden size, K key heads, D head
size, M prefix tokens. Rows are stream-major: row p * B + b is stream p of sequence b.
"""

import inspect

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

# Names that versions of transformers have for the cache in an attention layer, the newest first.
CACHE_NAMES = ("cache", "past_key_values", "past_key_value")


class PrefixedCache:
    """The cache as one attention layer sees it: the prefix of every stream stands before the tokens.

    The prefix has no positions and is never stored. The P streams of a sequence share a row of the stored cache, as
    P * K heads, so that beam search reorders rows and `generate` counts tokens as in any other model.
    """

    def __init__(self, attention, cache, length):
        self.attention, self.cache, self.length = attention, cache, length

    def update(self, keys, values, layer, *args, **kwargs):
        """Stores new keys and values, [P * B, K, T, D]; returns all that a query may see, [P * B, K, M + S, D]."""
        prefixes = self.attention.prefix_k, self.attention.prefix_v
        streams, heads, _, size = prefixes[0].shape
        rows = keys.shape[0] // streams
        if self.cache is not None:
            # [P * B, K, T, D] -> [B, P * K, T, D]
            fold = lambda x: x.view(streams, rows, heads, -1, size).transpose(0, 1).flatten(1, 2)
            unfold = lambda x: x.view(rows, streams, heads, -1, size).transpose(0, 1).flatten(0, 1)
            keys, values = self.cache.update(fold(keys), fold(values), layer, *args, **kwargs)
            # A static cache returns all its places, of which the first S are in use.
            keys, values = unfold(keys[:, :, : self.length]), unfold(values[:, :, : self.length])
        self.attention.has_read_prefix = True
        return tuple(
            torch.cat([prefix.to(x.dtype).repeat_interleave(rows, dim=0), x], dim=2)
            for prefix, x in zip(prefixes, (keys, values))
        )


def add_prefix(attention, config):
    """Gives an attention layer its prefixes, [P, K, M, D], which it reads through its cache."""
    heads, size = config.num_key_value_heads, attention.head_dim
    shape = (config.parscale_n, heads, config.parscale_n_tokens, size)
    attention.prefix_k = nn.Parameter(torch.empty(shape))
    attention.prefix_v = nn.Parameter(torch.empty(shape))
    attention.has_read_prefix = False
    parameters = inspect.signature(type(attention).forward).parameters
    name = next((name for name in CACHE_NAMES if name in parameters), None)
    if name is None:
        raise ImportError("the attention of this version of transformers takes no cache: prefixes would be dropped")

    def read_prefix(attention, args, kwargs):
        cache, mask = kwargs.get(name), kwargs["attention_mask"]
        kwargs[name] = PrefixedCache(attention, cache, mask.shape[-1] - config.parscale_n_tokens)
        return args, kwargs

    attention.register_forward_pre_hook(read_prefix, with_kwargs=True)


def require_supported(config):
    """Refuses what would silently be computed wrongly."""
    transforms = getattr(config, "parscale_transforms", None)
    if transforms not in (None, ["prefix"]):
        raise ValueError(f"parscale_transforms {transforms}: only prefixes are supported here, use parscale itself")
    if config.parscale_aggregation not in ("dynamic", "linear"):
        raise ValueError(f'parscale_aggregation must be "dynamic" or "linear", not "{config.parscale_aggregation}"')
    if getattr(config, "use_sliding_window", False):
        raise ValueError("sliding-window attention is not supported")


class ParScaleModel:
    """A backbone whose rows are P streams, and whose output is their weighted mean."""

    def __init__(self, config):
        super().__init__(config)
        require_supported(config)
        streams, width = config.parscale_n, config.hidden_size
        for layer in self.layers:
            add_prefix(layer.self_attn, config)
        if streams > 1 and config.parscale_aggregation == "linear":
            self.aggregate_layer = nn.Linear(streams * width, width)
        elif streams > 1:
            self.aggregate_layer = nn.Sequential(
                nn.Linear(streams * width, width), nn.SiLU(), nn.Linear(width, streams)
            )
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None, **kwargs):
        streams = self.config.parscale_n
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # [B, T, C]
        cache = next((kwargs[name] for name in CACHE_NAMES if kwargs.get(name) is not None), None)
        cached = 0 if cache is None else int(cache.get_seq_length())
        if position_ids is None:
            position_ids = self.positions(inputs_embeds, attention_mask, cached)
        position_ids = position_ids.expand(inputs_embeds.shape[0], -1)
        outputs = super().forward(
            inputs_embeds=inputs_embeds.repeat(streams, 1, 1),  # [P * B, T, C]
            attention_mask=self.mask(inputs_embeds, attention_mask, cached),
            position_ids=position_ids.repeat(streams, 1),
            **kwargs,
        )
        if not all(layer.self_attn.has_read_prefix for layer in self.layers):
            raise RuntimeError("prefixes were not read: this version of transformers does not fit modeling_parscale.py")
        outputs.last_hidden_state = self.aggregate(outputs.last_hidden_state)
        return outputs

    def positions(self, inputs_embeds, attention_mask, cached):
        """Positions [B, T] of the new tokens, from 0 at the first after the padding of each row; prefixes have none."""
        new, device = inputs_embeds.shape[1], inputs_embeds.device
        if not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2:
            return torch.arange(cached, cached + new, device=device)[None]
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -new:]

    def mask(self, inputs_embeds, attention_mask, cached):
        """Additive mask [P * B, 1, T, M + S]: every token sees the whole prefix, and tokens up to itself."""
        rows, new = inputs_embeds.shape[:2]
        if self.config._attn_implementation not in ("eager", "sdpa"):
            raise ValueError('use attn_implementation "eager" or "sdpa": others take no mask of this form')
        if isinstance(attention_mask, dict):  # as `generate` makes it for static caches
            attention_mask = attention_mask["full_attention"]
        if attention_mask is not None and attention_mask.dim() == 4:
            seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        else:
            length = cached + new
            seen = torch.ones(new, length, dtype=torch.bool, device=inputs_embeds.device).tril(cached)
            if attention_mask is not None:
                seen = seen & attention_mask[:, None, None, -length:].bool()
        seen = seen.expand(rows, 1, new, -1)
        seen = torch.cat([seen.new_ones(rows, 1, new, self.config.parscale_n_tokens), seen], dim=-1)
        mask = torch.zeros(seen.shape, dtype=inputs_embeds.dtype, device=seen.device)
        return mask.masked_fill(~seen, torch.finfo(mask.dtype).min).repeat(self.config.parscale_n, 1, 1, 1)

    def aggregate(self, hidden):
        """Mixes the streams of every token after the final norm: [P * B, T, C] -> [B, T, C] (section 3 of the paper)."""
        streams, smoothing = self.config.parscale_n, self.config.parscale_attn_smooth
        if streams == 1:
            return hidden
        hidden = hidden.unflatten(0, (streams, -1))  # [P, B, T, C]
        joined = hidden.permute(1, 2, 3, 0).flatten(-2)  # [B, T, C * P], the stream runs fastest
        if self.config.parscale_aggregation == "linear":
            return self.aggregate_layer(joined)
        weights = torch.softmax(self.aggregate_layer(joined).float(), dim=-1)  # [B, T, P]
        weights = weights * (1 - smoothing) + smoothing / streams
        mixed = (hidden.float() * weights.permute(2, 0, 1)[..., None]).sum(0)
        return mixed.to(hidden.dtype)


class ParScaleInit:
    """First values of prefixes that a checkpoint lacks: those of the paper."""

    def _init_weights(self, module):
        super()._init_weights(module)
        for name in ("prefix_k", "prefix_v"):
            if hasattr(module, name):
                nn.init.normal_(getattr(module, name), std=self.config.initializer_range)


def with_parscale(config):
    """The fields of a configuration that a file may leave out, as in the authors' class."""
    defaults = {"parscale_n": 1, "parscale_n_tokens": 48, "parscale_attn_smooth": 0.01, "parscale_aggregation": "dynamic"}
    for name, value in defaults.items():
        if not hasattr(config, name):
            setattr(config, name, value)
    return config


def parscale_classes(family, config_class, model_class, head_class):
    """Configuration, model and model with head of a backbone family."""
    config = type(f"{family}ParScaleConfig", (config_class,), {"model_type": f"{config_class.model_type}_parscale"})

    class Model(ParScaleModel, ParScaleInit, model_class):
        config_class = config

    class WithHead(ParScaleInit, head_class):
        config_class = config

        def __init__(self, config):
            super().__init__(with_parscale(config))
            self.model = Model(config)
            self.post_init()

    for part, name in ((Model, "Model"), (WithHead, "ForCausalLM")):
        part.__name__ = part.__qualname__ = f"{family}ParScale{name}"
    return config, Model, WithHead


Qwen2ParScaleConfig, Qwen2ParScaleModel, Qwen2ParScaleForCausalLM = parscale_classes(
    "Qwen2", Qwen2Config, Qwen2Model, Qwen2ForCausalLM
)
Qwen3ParScaleConfig, Qwen3ParScaleModel, Qwen3ParScaleForCausalLM = parscale_classes(
    "Qwen3", Qwen3Config, Qwen3Model, Qwen3ForCausalLM
)
LlamaParScaleConfig, LlamaParScaleModel, LlamaParScaleForCausalLM = parscale_classes(
    "Llama", LlamaConfig, LlamaModel, LlamaForCausalLM
)

for _config, _model in (
    (Qwen2ParScaleConfig, Qwen2ParScaleForCausalLM),
    (Qwen3ParScaleConfig, Qwen3ParScaleForCausalLM),
    (LlamaParScaleConfig, LlamaParScaleForCausalLM),
):
    # `save_pretrained` copies this file, and names it in config.json.
    _config.register_for_auto_class()
    _model.register_for_auto_class("AutoModelForCausalLM")
