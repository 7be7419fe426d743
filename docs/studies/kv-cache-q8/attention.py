"""Processor time of the attention of one decode step with keys and values in f32 and in 8 bits.

    python attention.py

Heads of SmolLM2-135M (9 over 3, of 64) in ONNX Runtime on one thread; medians of runs in turns.
"""
import time

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

K, G, D = 3, 3, 64
F32, I8, U8, I32, I64 = (
    TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64,
)  # fmt: skip
ROUNDS = 25
node = helper.make_node


def constant(name, dtype, value):
    return helper.make_tensor(name, dtype, np.shape(value), np.ravel(value).tolist())


CONSTANTS = [
    constant("last", I64, [-1]),
    constant("zero", U8, 128),
    constant("1/127", F32, 1 / 127),
    constant("1/65535", F32, 1 / 65535),
    constant("256", F32, 256.0),
    constant("1/256", F32, 1 / 256),
]


def transposed(name, result):
    return node("Transpose", [name], [result], perm=[0, 1, 3, 2])


PLAIN = [
    node("FusedMatMul", ["q", "k32"], ["s"], domain="com.microsoft", transB=1, alpha=D**-0.5),
    node("Softmax", ["s"], ["w"], axis=-1),
    node("MatMul", ["w", "v32"], ["o"]),
]
# Scales of keys, with 1/sqrt(D) in them, are [P, K, S, 1], those of values [P, K, 1, S].
EXPANDED = [
    node("DequantizeLinear", ["k", "k scales", "zeros"], ["k32"], axis=3, block_size=D),
    node("DequantizeLinear", ["v", "v columns", "zeros"], ["v32"], axis=3, block_size=D),
    *PLAIN,
]
# Keys times queries, so that keys lie as they are appended; weights in two digits of 8 bits.
INTEGER = [
    node("Abs", ["q"], ["|q|"]),
    node("ReduceMax", ["|q|", "last"], ["max q"]),
    node("Mul", ["max q", "1/127"], ["q scale"]),
    node("Div", ["q", "q scale"], ["q/s"]),
    transposed("q/s", "q/s t"),
    node("Round", ["q/s t"], ["q round"]),
    node("Cast", ["q round"], ["q8"], to=I8),
    node("MatMulInteger", ["k", "q8", "zero"], ["s int"]),
    node("Cast", ["s int"], ["s f32"], to=F32),
    transposed("q scale", "q scale t"),
    node("Mul", ["s f32", "q scale t"], ["s 1"]),
    node("Mul", ["s 1", "k scales"], ["s 2"]),
    transposed("s 2", "s"),
    node("Softmax", ["s"], ["w"], axis=-1),
    node("Mul", ["w", "v scales"], ["x"]),
    node("ReduceMax", ["x", "last"], ["max x"]),
    node("Mul", ["max x", "1/65535"], ["x scale"]),
    node("Div", ["x", "x scale"], ["x/s"]),
    node("Mul", ["x/s", "1/256"], ["x/256"]),
    node("Floor", ["x/256"], ["high"]),
    node("Mul", ["high", "256"], ["high part"]),
    node("Sub", ["x/s", "high part"], ["low"]),
    node("Cast", ["high"], ["high8"], to=U8),
    node("Cast", ["low"], ["low8"], to=U8),
    node("Concat", ["high8", "low8"], ["digits"], axis=2),
    node("MatMulInteger", ["digits", "v", "", "zero"], ["o int"]),
    node("Cast", ["o int"], ["o f32"], to=F32),
    node("Split", ["o f32"], ["o high", "o low"], axis=2, num_outputs=2),
    node("Mul", ["o high", "256"], ["o 1"]),
    node("Add", ["o 1", "o low"], ["o 2"]),
    node("Mul", ["o 2", "x scale"], ["o"]),
]
# One operator that appends to the cache and attends; its scales are fixed, one a channel.
GROUPED_INPUTS = ["q", "new k", "new v", "k", "v", "lengths", "total", *[""] * 5, "k fixed", "v fixed"]
GROUPED = [
    node(
        "GroupQueryAttention", GROUPED_INPUTS, ["o", "k out", "v out"], domain="com.microsoft",
        num_heads=K * G, kv_num_heads=K, k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL",
        kv_cache_bit_width=8,
    )
]  # fmt: skip

TYPES = {np.dtype("float32"): F32, np.dtype("int8"): I8, np.dtype("uint8"): U8, np.dtype("int32"): I32}


class Program:
    """A session whose inputs, and outputs that are states, stay where they are."""

    def __init__(self, nodes, feeds, out_shape, states=()):
        read = {name for each in nodes for name in each.input}
        feeds = {name: value for name, value in feeds.items() if name in read}
        value = helper.make_tensor_value_info
        inputs = [value(name, TYPES[x.dtype], x.shape) for name, x in feeds.items()]
        kept = [value(out, TYPES[feeds[name].dtype], feeds[name].shape) for out, name in states]
        outputs = [value("o", F32, out_shape), *kept]
        constants = [each for each in CONSTANTS if each.name in read]
        graph = helper.make_graph(nodes, "attention", inputs, outputs, constants)
        domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=providers
        )
        self.binding = self.session.io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in feeds.items()}
        for name, x in values.items():
            self.binding.bind_ortvalue_input(name, x)
        for out, name in states:
            self.binding.bind_ortvalue_output(out, values[name])
        self.binding.bind_output("o")
        self.seconds = []

    def run(self):
        begin = time.process_time()
        self.session.run_with_iobinding(self.binding)
        self.seconds.append(time.process_time() - begin)
        return self.binding.get_outputs()[0].numpy()


def programs(P, S):
    random = np.random.default_rng(0)
    normal = lambda *shape: random.standard_normal(shape).astype("float32")
    q, k, v = normal(P, K, G, D), normal(P, K, S, D), normal(P, K, S, D)

    def codes(x):
        scales = np.abs(x).max(-1, keepdims=True) / 127
        return (np.rint(x / scales) + 128).astype("uint8"), scales.astype("float32")

    (k8, k_scales), (v8, v_scales) = codes(k), codes(v)
    zeros = np.full(k_scales.shape, 128, "uint8")
    wide = (P, K, G, D)
    integer = {
        "q": q, "k": k8, "v": v8, "k scales": k_scales * np.float32(D**-0.5),
        "v scales": np.ascontiguousarray(v_scales.transpose(0, 1, 3, 2)),
    }  # fmt: skip
    fixed = np.full(K * D, 1 / 30, "float32")
    signed = lambda x: np.rint(x * 30).clip(-127, 127).astype("int8")
    grouped = {
        "q": normal(P, 1, K * G * D), "new k": normal(P, 1, K * D), "new v": normal(P, 1, K * D),
        "k": signed(k), "v": signed(v), "k fixed": fixed, "v fixed": fixed,
        "lengths": np.full(P, S - 1, "int32"), "total": np.array([S], "int32"),
    }  # fmt: skip
    expanded = {"q": q, "k": k8, "v": v8, "k scales": k_scales, "v columns": v_scales, "zeros": zeros}
    states = [("k out", "k"), ("v out", "v")]
    return {
        "f32": Program(PLAIN, {"q": q, "k32": k, "v32": v}, wide),
        "expanded": Program(EXPANDED, expanded, wide),
        "integer": Program(INTEGER, integer, wide),
        "grouped": Program(GROUPED, grouped, (P, 1, K * G * D), states),
    }


for P, S in ((1, 128), (1, 512), (1, 2048), (8, 512), (8, 2048), (8, 8192)):
    made = programs(P, S)
    results = {name: made[name].run() for name in ("f32", "expanded", "integer")}
    for name in ("expanded", "integer"):
        error = np.abs(results[name] - results["f32"]).max()
        assert error < 0.05 * np.abs(results["f32"]).max(), f"{name} is off by {error}"
    for _ in range(ROUNDS):
        for program in made.values():
            program.run()
    times = {name: np.median(program.seconds) for name, program in made.items()}
    ratios = ", ".join(f"{name} {s / times['f32']:.2f}x" for name, s in times.items() if name != "f32")
    print(f"P={P}, {S} tokens: f32 {1e3 * times['f32']:.2f} ms, {ratios}", flush=True)
