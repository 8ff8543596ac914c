#!/usr/bin/env python3
"""Makes the small graphs that models/graph is tested with, and cases.json beside them.

Every case that can be rewritten holds an input x and the output y that numpy computes with the dequantised float32 weights, and is run
here once as it is, so that a graph that ONNX Runtime does not accept never becomes a test. Needs onnx, onnxruntime and numpy.

    make.py             writes the graphs and cases.json into this folder
    make.py check DIR   runs DIR/CASE.onnx (the rewritten graphs) and compares their outputs with cases.json
"""

import json
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MS = "com.microsoft"
rng = np.random.default_rng(11)
cases = []


def tensor(name, array, typed=False):
    if typed:  # in a typed list instead of raw bytes
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())
    return numpy_helper.from_array(array, name)


def node(op, inputs, outputs, name, domain=None, **attrs):
    return helper.make_node(op, inputs, outputs, name=name, domain=domain, **attrs)


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def quantize(x="x", to="x"):
    return node("DynamicQuantizeLinear", [x], [to + "_q", to + "_scale", to + "_zero"], to + "/quantize")


def product(name, y, weight="w", x="x", scale=None, zero="w_zero", swap=False):
    """The four nodes a quantiser makes of MatMul(x, w)."""
    scale = scale or weight + "_scale"
    pair = [x + "_scale", scale]
    product = [name + "_cast", name + "_scales"]
    if swap:
        pair.reverse()
        product.reverse()
    inputs = [x + "_q", weight + "_q", x + "_zero"] + ([zero] if zero else [])
    return [
        node("MatMulInteger", inputs, [name + "_int"], name + "_quant"),
        node("Cast", [name + "_int"], [name + "_cast"], name + "_cast", to=TensorProto.FLOAT),
        node("Mul", pair, [name + "_scales"], name + "_scales_mul"),
        node("Mul", product, [y], name + "_output_scale_mul"),
    ]


def weights(shape, dtype=np.int8, columns=False, zero=True):
    """A random weight, its scale, its zero point and what they stand for."""
    info = np.iinfo(dtype)
    w = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    n = (shape[-1],) if columns else ()
    scale = np.asarray(rng.uniform(0.001, 0.02, n), np.float32)
    zp = np.asarray(rng.integers(info.min // 2, info.max // 2, n), dtype) if zero else np.zeros(n, dtype)
    return w, scale, zp, dequantize(w, scale, zp)


def dequantize(w, scale, zero):
    return ((w.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale).astype(np.float32)


def model(name, nodes, initializers, x=("b", 8), y=("b", 6), opset=14, ir=7, inputs=None, outputs=None, ms=False, value_info=(), functions=()):
    graph = helper.make_graph(
        nodes, name, inputs or [value("x", x)], outputs or [value("y", y)], initializer=initializers, value_info=list(value_info)
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(MS, 1)] if ms else [])
    opsets += [helper.make_opsetid("local", 1)] if functions else []
    return helper.make_model(graph, producer_name="make.py", opset_imports=opsets, ir_version=ir, functions=list(functions))


def add(m, x=None, y=None, note="", want=None, location=None, **facts):
    """Saves a case: one that becomes x -> y, or one that must be refused (want: kind of error, node)."""
    name = m.graph.name
    path = os.path.join(HERE, name + ".onnx")
    data = m.SerializeToString(deterministic=True)
    if location:
        if os.path.exists(os.path.join(HERE, location)):
            os.remove(os.path.join(HERE, location))
        onnx.save_model(m, path, save_as_external_data=True, location=location, size_threshold=0)
        os.chmod(os.path.join(HERE, location), 0o644)
    else:
        with open(path, "wb") as f:
            f.write(data)
    case = {"name": name, "note": note}
    case.update(facts)
    if want:
        case["want"] = {"error": want[0], "node": want[1]}
    else:
        got = run(path, x)
        # The activations' rounding to 8 bits: far below the values, far above what a wrong weight would hide in.
        assert np.abs(got - y).max() < 0.05 * np.abs(y).max(), name
        case.update(x=flat(x), y=flat(y), xShape=list(x.shape), yShape=list(y.shape))
    if want:
        run(path, np.ones((2, 8), np.float32) if x is None else x, optimize=False)  # its optimiser trips over some of these
    cases.append(case)


def flat(a):
    return [float(v) for v in a.reshape(-1)]


def run(path, x, optimize=True):
    options = ort.SessionOptions()
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    s = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return s.run([s.get_outputs()[0].name], {"x": x})[0]


def activations(*shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def make():
    x = activations(2, 8)

    w, s, z, f = weights((8, 6), zero=False)
    bias = activations(6)
    add(
        model(
            "int8_bias",
            [quantize()] + product("m", "p") + [node("Add", ["bias", "p"], ["y"], "add")],
            [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z), tensor("bias", bias)],
            value_info=[value("p", ("b", 6)), value("m_int", ("b", 6), TensorProto.INT32), value("m_cast", ("b", 6))],
        ),
        x, x @ f + bias, "one scale, zero point 0, a bias after it, inner shapes in the file", matmuls=1, nodes=3,
    )

    w, s, z, f = weights((8, 6), np.uint8)
    add(
        model("uint8", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)]),
        x, x @ f, "uint8 with a zero point", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 6), zero=False)
    add(
        model("no_zero", [quantize()] + product("m", "y", zero=None), [tensor("w_q", w), tensor("w_scale", s)]),
        x, x @ f, "no zero point at all", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 6))
    add(
        model(
            "one_element", [quantize()] + product("m", "y"),
            [tensor("w_q", w), tensor("w_scale", s.reshape(1)), tensor("w_zero", z.reshape(1))],
        ),
        x, x @ f, "scale and zero point of shape [1]", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 6))
    add(
        model("swapped", [quantize()] + product("m", "y", swap=True), [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)]),
        x, x @ f, "both Muls with their operands the other way round", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 6), np.int8, columns=True, zero=False)
    x3 = activations(2, 3, 8)
    add(
        model(
            "per_channel", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)],
            x=("b", "n", 8), y=("b", "n", 6),
        ),
        x3, x3 @ f, "one scale and zero point per column", matmuls=1, nodes=2, perChannel=1,
    )

    w, s, z, f = weights((8, 6), np.uint8, columns=True)
    zero = np.asarray(np.uint8(131))
    add(
        model("scale_per_channel", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", zero)]),
        x, x @ dequantize(w, s, zero), "a scale per column, one zero point", matmuls=1, nodes=2, perChannel=1,
    )

    w, s, z, f = weights((8, 6), np.uint8, columns=True)
    scale = np.asarray(np.float32(0.0117))
    add(
        model("zero_per_channel", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", scale), tensor("w_zero", z)]),
        x, x @ dequantize(w, scale, z), "one scale, a zero point per column", matmuls=1, nodes=2, perChannel=1,
    )

    w, s, z, f = weights((8, 6))
    add(
        model(
            "typed_lists", [quantize()] + product("m", "y"),
            [tensor("w_q", w, True), tensor("w_scale", s.reshape(1), True), tensor("w_zero", z.reshape(1), True)],
        ),
        x, x @ f, "elements in typed lists instead of raw bytes", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((2, 8, 6))
    xb = activations(2, 3, 8)
    add(
        model(
            "batched_weight", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)],
            x=(2, 3, 8), y=(2, 3, 6),
        ),
        xb, xb @ f, "a weight with three dimensions", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 8), np.uint8)
    v, t, u, g = weights((8, 6))
    add(
        model(
            "consumers",
            [quantize()] + product("a", "ya") + product("b", "yb")
            + [quantize("ya", "h")] + product("c", "yc", weight="v", x="h", zero="v_zero")
            + [node("Relu", ["ya"], ["r"], "relu"), node("Add", ["r", "yb"], ["sum"], "add"), quantize("sum", "sum")]
            + product("d", "yd", weight="v", x="sum", zero="v_zero", swap=True) + [node("Add", ["yc", "yd"], ["y"], "add2")],
            [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z), tensor("v_q", v), tensor("v_scale", t), tensor("v_zero", u)],
        ),
        x, (x @ f) @ g + (np.maximum(x @ f, 0) + x @ f) @ g,
        "activations and weights that several products share", matmuls=4, weights=2, nodes=9,
    )

    w, s, z, f = weights((8, 6))
    add(
        model(
            "constants",
            [
                node("Constant", [], ["w_first"], "const_w", value=tensor("", w)),
                node("Constant", [], ["w_scale"], "const_s", value=tensor("", s.reshape(1))),
                node("Identity", ["w_first"], ["w_q"], "same_w"),
                quantize(),
            ] + product("m", "y"),
            [tensor("w_zero", z)],
        ),
        x, x @ f, "weight and scale from Constant nodes, one through Identity", matmuls=1, nodes=4,
    )

    w, s, z, f = weights((8, 6))
    add(
        model(
            "taken_names", [quantize()] + product("w_q_dequantized", "p") + [node("Add", ["p", "w_scale_scalar"], ["y"], "w_q_DequantizeLinear")],
            [tensor("w_q", w), tensor("w_scale", s.reshape(1)), tensor("w_zero", z.reshape(1)), tensor("w_scale_scalar", np.float32(1.5))],
        ),
        x, x @ f + np.float32(1.5), "the names the rewrite would choose are taken", matmuls=1, nodes=3,
    )

    w, s, z, f = weights((8, 6))
    initializers = [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z), tensor("unused", s)]
    add(
        model(
            "old_inputs", [quantize()] + product("m", "y"), initializers, opset=11, ir=3,
            inputs=[value("x", ("b", 8))] + [value(t.name, t.dims, t.data_type) for t in initializers],
        ),
        x, x @ f, "IR version 3, where initialisers are inputs too; opset 11", matmuls=1, nodes=2,
    )

    w, s, z, f = weights((8, 6))
    branch = lambda name, op: helper.make_graph([node(op, ["p"], [name], name)], name, [], [value(name, ("b", 6))])
    add(
        model(
            "subgraph_reader",
            [quantize()] + product("m", "p") + [node("If", ["yes"], ["y"], "if", then_branch=branch("t", "Identity"), else_branch=branch("e", "Neg"))],
            [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z), tensor("yes", np.asarray(True))],
        ),
        x, x @ f, "only a subgraph reads the result", matmuls=1, nodes=3, interpret=False,
    )

    w, s, z, f = weights((64, 6))
    xl = activations(2, 64)
    add(
        model("external", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", s.reshape(1)), tensor("w_zero", z)], x=("b", 64)),
        xl, xl @ f, "weights in another file", matmuls=1, nodes=2, location="external.data", external=["external.data"], interpret=False,
    )

    w, s, z, f = weights((8, 6), np.uint8)
    bias = activations(6)
    add(
        model(
            "fused_dynamic",
            [node("DynamicQuantizeMatMul", ["x", "w_q", "w_scale", "w_zero", "bias"], ["y"], "m", MS)],
            [tensor("w_q", w), tensor("w_scale", s.reshape(1)), tensor("w_zero", z.reshape(1)), tensor("bias", bias)], ms=True,
        ),
        x, x @ f + bias, "ONNX Runtime's DynamicQuantizeMatMul with a bias", matmuls=1, nodes=3, fused=1,
    )

    w, s, z, f = weights((8, 6), np.int8, columns=True)
    add(
        model(
            "fused_to_float",
            [quantize(), node("MatMulIntegerToFloat", ["x_q", "w_q", "x_scale", "w_scale", "x_zero", "w_zero"], ["y"], "m", MS)],
            [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)], ms=True,
        ),
        x, x @ f, "ONNX Runtime's MatMulIntegerToFloat", matmuls=1, nodes=2, fused=1, perChannel=1,
    )

    # What must be refused, with the node that is to be named.
    w, s, z, f = weights((8, 6))
    plain = [tensor("w_q", w), tensor("w_scale", s), tensor("w_zero", z)]
    add(model("float", [node("MatMul", ["x", "w"], ["y"], "m")], [tensor("w", f)]), want=("not dynamic", ""))
    add(
        model(
            "two_activations",
            [node("Transpose", ["x"], ["xt"], "t"), quantize(), quantize("xt", "t")]
            + [node("MatMulInteger", ["x_q", "t_q", "x_zero", "t_zero"], ["i"], "attention"), node("Cast", ["i"], ["c"], "c", to=1),
               node("Mul", ["x_scale", "t_scale"], ["ss"], "ss"), node("Mul", ["c", "ss"], ["y"], "mul")],
            [], y=("b", "b"),
        ),
        want=("pattern", "attention"),
    )
    add(
        model("computed_weight", [node("Neg", ["w_q"], ["w2_q"], "neg"), quantize()] + product("m", "y", weight="w2", scale="w_scale"), plain),
        want=("pattern", "m_quant"),
    )
    add(
        model(
            "weight_first",
            [node("Transpose", ["x"], ["xt"], "t"), quantize("xt"), node("MatMulInteger", ["v_q", "x_q", "w_zero", "x_zero"], ["i"], "m"),
             node("Cast", ["i"], ["c"], "c", to=1), node("Mul", ["x_scale", "w_scale"], ["ss"], "ss"), node("Mul", ["c", "ss"], ["y"], "mul")],
            [tensor("v_q", w.T.copy())] + plain[1:], y=(6, "b"),
        ),
        want=("pattern", "m"),
    )
    add(
        model("integer_output", [quantize()] + product("m", "y"), plain, outputs=[value("y", ("b", 6)), value("m_int", ("b", 6), TensorProto.INT32)]),
        want=("pattern", "m_quant"),
    )
    add(
        model("cast_read_twice", [quantize()] + product("m", "p") + [node("Add", ["p", "m_cast"], ["y"], "add")], plain),
        want=("pattern", "m_cast"),
    )
    add(
        model("integer_read_twice", [quantize()] + product("m", "p")
              + [node("Cast", ["m_int"], ["again"], "again", to=1), node("Add", ["p", "again"], ["y"], "add")], plain),
        want=("pattern", "m_quant"),
    )
    add(
        model("cast_to_double", [quantize()] + [
            node("MatMulInteger", ["x_q", "w_q", "x_zero", "w_zero"], ["i"], "m"), node("Cast", ["i"], ["c"], "cast", to=TensorProto.DOUBLE),
            node("Cast", ["c"], ["y"], "back", to=1)], plain),
        want=("pattern", "cast"),
    )
    add(
        model("foreign_scale", [quantize(), node("Neg", ["x"], ["n"], "neg"), quantize("n", "n"),
              node("MatMulInteger", ["x_q", "w_q", "x_zero", "w_zero"], ["i"], "m"), node("Cast", ["i"], ["c"], "c", to=1),
              node("Mul", ["n_scale", "w_scale"], ["ss"], "ss"), node("Mul", ["c", "ss"], ["y"], "mul")], plain),
        want=("pattern", "ss"),
    )
    add(
        model("foreign_zero", [quantize(), node("Neg", ["x"], ["n"], "neg"), quantize("n", "n"),
              node("MatMulInteger", ["x_q", "w_q", "n_zero", "w_zero"], ["i"], "m"), node("Cast", ["i"], ["c"], "c", to=1),
              node("Mul", ["x_scale", "w_scale"], ["ss"], "ss"), node("Mul", ["c", "ss"], ["y"], "mul")], plain),
        want=("pattern", "m"),
    )
    add(
        model("scale_is_output", [quantize()] + product("m", "y"), plain, outputs=[value("y", ("b", 6)), value("x_scale", ())]),
        want=("pattern", "x/quantize"),
    )
    wide = np.repeat(s.reshape(1, 1), 6, 1)
    add(model("wide_scale", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", wide), tensor("w_zero", z)]), want=("pattern", "m_quant"))
    rows = np.asarray(rng.uniform(0.001, 0.02, (8, 1)), np.float32)
    add(
        model("scale_per_row", [quantize()] + product("m", "y"), [tensor("w_q", w), tensor("w_scale", rows), tensor("w_zero", z)], x=(8, 8), y=(8, 6)),
        x=activations(8, 8), want=("pattern", "m_quant"),
    )
    w2, s2, z2, _ = weights((8, 6), columns=True)
    add(
        model("old_per_channel", [quantize()] + product("m", "y"), [tensor("w_q", w2), tensor("w_scale", s2), tensor("w_zero", z2)], opset=11),
        want=("opset", "m_quant"),
    )
    kernel = rng.integers(-9, 9, (2, 1, 3)).astype(np.uint8)
    add(
        model("convolution", [quantize(), node("Reshape", ["x_q", "shape"], ["r"], "reshape"), node("ConvInteger", ["r", "k", "x_zero"], ["i"], "conv"),
              node("Cast", ["i"], ["y"], "c", to=1)], [tensor("k", kernel), tensor("shape", np.array([-1, 1, 8], np.int64))], y=("b", 2, 6)),
        want=("pattern", "conv"),
    )
    inner = lambda name: helper.make_graph([quantize("x", name)] + product(name, name + "_y", x=name), name, [], [value(name + "_y", ("b", 6))])
    add(
        model("inside_subgraph", [node("If", ["yes"], ["y"], "if", then_branch=inner("t"), else_branch=inner("e"))], plain + [tensor("yes", np.asarray(True))]),
        want=("pattern", "e/quantize"),
    )
    function = helper.make_function("local", "Dense", ["x", "w_q", "w_scale", "w_zero"], ["y"], [quantize()] + product("m", "y"), [helper.make_opsetid("", 14)])
    add(
        model("inside_function", [node("Dense", ["x", "w_q", "w_scale", "w_zero"], ["y"], "d", "local")], plain, ir=8, functions=[function]),
        want=("pattern", "x/quantize"),
    )

    with open(os.path.join(HERE, "cases.json"), "w") as f:
        json.dump(cases, f, indent=1)
        f.write("\n")
    print(len(cases), "cases")


def check(folder):
    with open(os.path.join(HERE, "cases.json")) as f:
        for case in json.load(f):
            if "want" in case:
                continue
            x = np.array(case["x"], np.float32).reshape(case["xShape"])
            y = np.array(case["y"], np.float32).reshape(case["yShape"])
            got = run(os.path.join(folder, case["name"] + ".onnx"), x)
            assert got.shape == y.shape, case["name"]
            print(f"{case['name']:20} largest difference {np.abs(got - y).max():.8f} of {np.abs(y).max():.3f}")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["check"] else make()
