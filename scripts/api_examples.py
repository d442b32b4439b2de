"""Examples of the API reference: one call for each public name, run when the reference is made.

An example is Python source. Names of `VALUES` that it uses are assigned in front of it; the value of its last
line is printed below it. A test runs all of them again and compares what they print with the pages.
"""

from __future__ import annotations

from scripts.api_op_examples import OPS as OPS

VALUES = {
    "x": "ts.array([[1.0, 2.0], [3.0, 4.0]])",
    "y": "ts.array([2.0, 0.5])",
    "s": "ts.array([-1.5, 0.5])",
    "i": "ts.array([6, -3])",
    "j": "ts.array([4, 2])",
    "b": "ts.array([True, False])",
    "c": "ts.array([True, True])",
    "n": "ts.array([1, 0])",
    "q": "ts.ones((1, 2, 3, 4))",
    "k": "ts.ones((1, 1, 5, 4))",
    "v": "ts.ones((1, 1, 5, 4))",
    "image": "ts.ones((1, 1, 4, 4))",
    "filter": "ts.ones((1, 1, 3, 3))",
    "signal": "ts.ones((1, 2, 5))",
    "upward": "ts.ones((2, 3, 2))",
    "volume": "ts.ones((1, 1, 2, 3, 3))",
    "box": "ts.ones((1, 1, 2, 2, 2))",
    "taps": "ts.ones((3, 2, 2))",
    "row": "ts.arange(16).cast(ts.f32)",
    "merged": "ts.ones((1, 5, 24))",
    "key": "ts.random.key(0)",
}
"""Values that examples share; the first one an example uses is the operand whose dtypes are tried."""

METHODS = {
    "to_device": "x.to_device(ts.cpu).shape",
    "T": "x.T",
    "address": "x.address % 64",
    "contiguous": "x.T.contiguous().is_contiguous",
    "copy": "x.copy()",
    "device": "x.device",
    "dtype": "x.dtype",
    "empty": "ts.Tensor.empty((2, 3), ts.f32).shape",
    "from_buffer": "ts.Tensor.from_buffer(bytearray(4)).dtype",
    "from_dlpack": "ts.Tensor.from_dlpack(x).shape",
    "from_numpy": "ts.Tensor.from_numpy(np.ones((2, 3), np.float32)).shape",
    "is_contiguous": "x.is_contiguous",
    "is_read_only": "x.is_read_only",
    "item": "x.sum().item()",
    "mT": "x.mT",
    "nbytes": "x.nbytes",
    "ndim": "x.ndim",
    "numpy": "x.numpy()",
    "of": "ts.Tensor.of([1, 2, 3], ts.i32)",
    "shape": "x.shape",
    "size": "x.size",
    "strides": "x.strides",
    "tobytes": "y.tobytes()",
    "tolist": "x.tolist()",
    "all": "b.all()",
    "any": "b.any()",
    "argmax": "x.argmax(axis=1)",
    "argmin": "x.argmin(axis=1)",
    "argsort": "y.argsort()",
    "astype": "s.astype(ts.i32)",
    "at": "x.at[0].set(7.0)",
    "broadcast_to": "y.broadcast_to((3, 2))",
    "cast": "s.cast(ts.bf16)",
    "clamp": "s.clamp(0.0, 1.0)",
    "clip": "s.clip(0.0, 1.0)",
    "dot": "x.dot(y)",
    "expand": "y.expand((2, 2))",
    "expand_dims": "y.expand_dims(0)",
    "log": "y.log()",
    "repeat": "y.repeat(2)",
    "reshape": "x.reshape(1, 4)",
    "sort": "y.sort()",
    "sqrt": "y.sqrt()",
    "squeeze": "image.squeeze().shape",
    "swapaxes": "x.swapaxes(0, 1)",
    "take": "x.take([3, 0])",
    "transpose": "x.transpose(1, 0)",
}
"""Members of `ts.Tensor`; a method that is not here is called on `x` without arguments."""

KERNEL = """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    a = tile.load(x, rows=T.m, cols=T.d)
    return {body}
"""
"""The kernel that an expression of `TILE` stands in: `a` is a tile of whole rows."""

TILE = {
    "INF": "tile.maximum(a, -tile.INF)",
    "KTile": "a * 2.0",
    "Tile": "a + a",
    "bitcast": "tile.bitcast(a, ts.i32)",
    "broadcast": "a - tile.broadcast(tile.max(a)[:, None], a.shape)",
    "butterfly": "tile.butterfly(a, 1, width=2)",
    "cast": "tile.cast(a, ts.bf16)",
    "col_index": "a + tile.cast(tile.col_index(T.d), ts.f32)",
    "context": "a * float(T.d)",
    "dot": "tile.dot(a, tile.transpose(a))",
    "dropout_in_kernel": "tile.dropout_in_kernel(a, 0.0)",
    "fma": "tile.fma(a, a, 1.0)",
    "full": "a + tile.full((T.m, T.d), 2.0)",
    "load": "tile.load(x, rows=T.m, cols=T.d, pad=0.0)",
    "mask_causal": "tile.mask_causal(a, tile.row_index(), tile.col_index(T.d))",
    "max": "tile.max(a, 1)",
    "maximum": "tile.maximum(a, 0.0)",
    "min": "tile.min(a, 1)",
    "minimum": "tile.minimum(a, 0.0)",
    "mma": "tile.mma(a, tile.transpose(a))",
    "reduce": 'tile.reduce(a, 1, "prod")',
    "row_index": "a + tile.cast(tile.row_index(), ts.f32)[:, None]",
    "scan": 'tile.scan(a, "sum", 1)',
    "shuffle": 'tile.shuffle(a, "down", 1, width=2)',
    "softmax": "tile.softmax(a)",
    "softmax_online": "tile.softmax_online(a)[1]",
    "sum": "tile.sum(a, 1)",
    "tile_scan": 'tile.tile_scan(a, "max", 1)',
    "transpose": "tile.transpose(tile.transpose(a))",
    "vote": 'tile.vote(a > 2.0, "any", width=2)',
    "where": "tile.where(a > 0.0, a, 0.0)",
    "zeros": "a + tile.zeros((T.m, T.d))",
}
"""Expressions on a tile `a`; a function of one tile that is not here is called with it."""

PROGRAMS = {
    "tessera.tile.store": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    tile.store(out, tile.load(x, rows=T.m, cols=T.n) * 2.0, rows=T.m, cols=T.n)

f(x)""",
    "tessera.tile.atomic_add": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["N", ts.f32]):
    T = tile.context()
    tile.atomic_add(out, tile.sum(tile.load(x, rows=T.m, cols=T.d), 0), T.d)

f(x)""",
    "tessera.tile.atomic_max": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["N", ts.f32]):
    T = tile.context()
    tile.atomic_max(out, tile.max(tile.load(x, rows=T.m, cols=T.d), 0), T.d)

f(x)""",
    "tessera.tile.atomic_min": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["N", ts.f32]):
    T = tile.context()
    tile.atomic_min(out, tile.min(tile.load(x, rows=T.m, cols=T.d), 0) - 9.0, T.d)

f(x)""",
    "tessera.tile.program": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["M", "N", ts.f32]):
    m, n = tile.program()
    tile.store(out, tile.load(x, m, n) + 1.0, rows=m, cols=n)

f(x)""",
    "tessera.tile.range_k": """@ts.kernel
def f(a: ts.KTile["M", "K", ts.f32], b: ts.KTile["K", "N", ts.f32]):
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return acc

f(x, x)""",
    "tessera.tile.range_n": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    total = tile.zeros((T.d,))
    for n in tile.range_n(x.shape, T.n):
        total += tile.sum(tile.load(x, rows=n, cols=T.d), 0)
    return total

f(x)""",
    "tessera.tile.range_m": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    total = tile.zeros((T.d,))
    for m in tile.range_m(x.shape, T.m):
        total += tile.sum(tile.load(x, rows=m, cols=T.d), 0)
    return total

f(x)""",
    "tessera.tile.steps": """@ts.kernel
def f(a: ts.KTile["M", "K", ts.f32], b: ts.KTile["K", "N", ts.f32]):
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    for k in tile.steps(a.shape[1], by=T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return acc

f(x, x)""",
    "tessera.tile.pipeline": """@ts.kernel
def f(a: ts.KTile["M", "K", ts.f32], b: ts.KTile["K", "N", ts.f32]):
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    steps = tile.range_k(a, T.k)
    with tile.pipeline(slot_count=2) as slot:
        slot.load(a, rows=T.m, cols=steps.first)
        for k in steps:
            block = slot.read()
            slot = slot.next()
            slot.load(a, rows=T.m, cols=k.next)
            acc += tile.dot(block, tile.load(b, rows=k, cols=T.n))
    return acc

f(x, x)""",
    "tessera.tile.softmax_accumulate": """@ts.kernel
def f(q: ts.KTile["S", "D", ts.f32], k: ts.KTile["K", "D", ts.f32], v: ts.KTile["K", "D", ts.f32]):
    T = tile.context()
    Q = tile.load(q, rows=T.m, cols=T.d)
    acc, m, total = tile.zeros((T.m, T.d)), tile.full((T.m,), -tile.INF), tile.zeros((T.m,))
    for n in tile.range_n(k.shape, T.n):
        P, m_c, l_c = tile.softmax_online(tile.dot(Q, tile.transpose(tile.load(k, n, cols=T.d))))
        acc, m, total = tile.softmax_accumulate(acc, m, total, P, tile.load(v, n, cols=T.d), m_c, l_c)
    return acc / total[:, None]

f(x, x, x)""",
    "tessera.tile.all_reduce": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    return tile.all_reduce(tile.load(x, rows=T.m, cols=T.n), "tp", op="max") * 2.0

with ts.dist.mesh(tp=1):
    print(f(x))""",
    "tessera.tile.all_gather": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32], out: ts.KTile["R", "M", "N", ts.f32], *, R: int):
    T = tile.context()
    for rank, part in enumerate(tile.all_gather(tile.load(x, T.m, T.n), "tp")):
        tile.store(out, part, rank, T.m, T.n)

with ts.dist.mesh(tp=1):
    print(f(x, R=1).shape)""",
    "tessera.tile.reduce_scatter": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    return tile.reduce_scatter([tile.load(x, T.m, T.n)], "tp")

with ts.dist.mesh(tp=1):
    print(f(x))""",
    "tessera.NVFP4": "ts.NVFP4()",
    "tessera.Inference": "ts.Inference()",
    "tessera.Training": "ts.Training()",
    "tessera.ComplexDType": "ts.c64.part, ts.c64.bits, ts.c128.epsilon",
    "tessera.c64": "ts.ones((2,), ts.c64)",
    "tessera.c128": "ts.array([1j], ts.c128)",
    "tessera.DType": "ts.f32.bits, ts.bf16.compute, ts.i8.is_integer",
    "tessera.InternalError": 'str(ts.InternalError("lost a value", where="tile-drop-bounds")).splitlines()[0]',
    "tessera.Jit": "f = ts.jit(lambda x: x * 2.0)\nf(x)\nf(x)\nf.cache_info().hits",
    "tessera.KTile": 'ts.KTile["B*H", "S", 64, ts.bf16 @ ts.accum(ts.f32)]',
    "tessera.Kernel": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) + 1.0

f.with_schedule(ts.Schedule(block=(64, 64))).schedule.m""",
    "tessera.ShapeTrace": "print(ts.shape_trace(lambda x: ts.ops.softmax(x @ x))(x))",
    "tessera.accum": "ts.bf16 @ ts.accum(ts.f32)",
    "tessera.compute": "ts.f32 @ ts.compute(ts.tf32)",
    "tessera.arange": "ts.arange(2, 8, 3)",
    "tessera.full": "ts.full((2,), 7.0)",
    "tessera.ones": "ts.ones((2, 2))",
    "tessera.loss_scale": "ts.f16 @ ts.loss_scale(1024.0)",
    "tessera.kernel": """@ts.kernel
def f(x: ts.KTile["M", "N", ts.f32]):
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) + 1.0

f(x)""",
    "tessera.quantize": "ts.quantize(x, ts.i8, axis=0).dequantize()",
    "tessera.register_tree": """class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

ts.register_tree(Pair, lambda p: ((p.a, p.b), None), lambda data, children: Pair(*children))
ts.jit(lambda p: p.a + p.b)(Pair(x, x))""",
    "tessera.scaled": "ts.i8 @ ts.scaled(1)",
    "tessera.tile_scaled": "ts.f8e4m3 @ ts.tile_scaled(128, 128)",
    "tessera.gpu": "ts.gpu[0]",
    "tessera.cpu": "ts.cpu",
    "tessera.nvfp4": "ts.nvfp4",
    "tessera.tf32": "ts.f32 @ ts.compute(ts.tf32)",
    "tessera.dist.all_gather": """f = ts.jit(lambda x: ts.dist.all_gather(x, axis="dp"))
with ts.dist.mesh(dp=1):
    print(f(x).shape)""",
    "tessera.dist.all_reduce": """f = ts.jit(lambda x: ts.dist.all_reduce(x, axis="dp", op="sum"))
with ts.dist.mesh(dp=1):
    print(f(y))""",
    "tessera.dist.all_to_all": """f = ts.jit(lambda x: ts.dist.all_to_all(x, axis="dp", split=0, concat=1))
with ts.dist.mesh(dp=1):
    print(f(x).shape)""",
    "tessera.dist.axis_index": """f = ts.jit(lambda x: x + ts.dist.axis_index("dp").cast(ts.f32))
with ts.dist.mesh(dp=1):
    print(f(y))""",
    "tessera.dist.mesh": """f = ts.jit(lambda x: ts.dist.all_reduce(x, axis="tp"))
with ts.dist.mesh(dp=1, tp=1):
    print(f(y))""",
    "tessera.dist.rank": "ts.dist.rank()",
    "tessera.dist.reduce_scatter": """f = ts.jit(lambda x: ts.dist.reduce_scatter(x, axis="dp"))
with ts.dist.mesh(dp=1):
    print(f(x).shape)""",
    "tessera.dist.replicated": """f = ts.jit(lambda x: ts.dist.replicated(x, axis="dp"))
with ts.dist.mesh(dp=1):
    print(f(y))""",
    "tessera.dist.run": "ts.dist.run(ts.dist.rank, ranks=2)",
    "tessera.dist.save_trace": """with ts.dist.timeline() as timeline:
    ts.jit(lambda x: x + 1.0)(x)

ts.dist.save_trace("trace.json", timeline.spans)""",
    "tessera.dist.timeline": """f = ts.jit(lambda x: x + 1.0)
with ts.dist.timeline() as timeline:
    y = f(x)

[span.kind for span in timeline.spans]""",
    "tessera.dist.world_size": "ts.dist.world_size()",
    "tessera.nn.Cell": """cell = ts.nn.LSTMCell.init(ts.random.key(0), 3, 4)
isinstance(cell, ts.nn.Cell)""",
    "tessera.nn.GPT2_NAMES": """len(ts.nn.GPT2_NAMES) > 0""",
    "tessera.nn.losses": "ts.nn.losses.smooth_l1_loss(ts.array([0.0, 0.0]), ts.array([1.0, 3.0]))",
    "tessera.nn.initializers": """ts.nn.initializers.normal(ts.random.key(0), (2, 3)).shape""",
    "tessera.optim.AccumulationState": """optimizer = ts.optim.accumulate(ts.optim.sgd(0.1), 2)
type(optimizer.init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.AdafactorState": """type(ts.optim.adafactor(0.1).init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.AdamState": """type(ts.optim.adam(0.1).init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.Assigned": """params = {"w": ts.ones((2,))}
ts.optim.apply_updates(params, ts.optim.Assigned({"w": ts.zeros((2,))}))["w"]""",
    "tessera.optim.AverageState": """type(ts.optim.ema(0.9).init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.CountState": """ts.optim.CountState.__name__""",
    "tessera.optim.EmptyState": """optimizer = ts.optim.clip_by_global_norm(1.0)
type(optimizer.init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.LionState": """type(ts.optim.lion(0.1).init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.MasterState": """optimizer = ts.optim.with_master(ts.optim.sgd(0.1))
type(optimizer.init({"w": ts.ones((2,), ts.bf16)})).__name__""",
    "tessera.optim.MomentumState": """type(ts.optim.sgd(0.1).init({"w": ts.ones((2,))})).__name__""",
    "tessera.optim.ParameterAverage": """type(ts.optim.ema(0.9)).__name__""",
    "tessera.optim.ScaledState": """optimizer = ts.optim.with_loss_scale(ts.optim.sgd(0.1))
type(optimizer.init({"w": ts.ones((2,))})).__name__""",
    "tessera.data.Dataset": """len(ts.data.Loader([1, 2, 3, 4], 2, shuffle=False))""",
    "tessera.data.write_tokens": """import tempfile
with tempfile.TemporaryDirectory() as folder:
    ts.data.write_tokens(f"{folder}/text.tokens", b"some text", vocabulary=256)
    count = len(ts.data.TokenFile(f"{folder}/text.tokens"))

count""",
    "tessera.train.Event": """found = []
optimizer = ts.optim.sgd(0.1)
step = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), optimizer)
state = ts.train.State.init(ts.zeros(()), optimizer)
ts.train.fit(step, state, [ts.ones((4,))], steps=2, callbacks=[lambda event: found.append(event.step)], progress=False)
found""",
    "tessera.train.Fit": """optimizer = ts.optim.sgd(0.1)
step = ts.train.make_step(lambda w, x: ((w - x) ** 2.0).mean(), optimizer)
state = ts.train.State.init(ts.zeros(()), optimizer)
ts.train.fit(step, state, [ts.ones((4,))], steps=2, progress=False).history.steps""",
    "tessera.train.Restored": """import tempfile
with tempfile.TemporaryDirectory() as folder, ts.train.Checkpointer(folder) as checkpoints:
    checkpoints.save(7, {"w": ts.ones((2,))})
    checkpoints.wait()
    found = checkpoints.restore({"w": ts.zeros((2,))})

found.step""",
    "tessera.train.restore": """import tempfile
with tempfile.TemporaryDirectory() as folder:
    ts.train.save(f"{folder}/model.safetensors", {"w": ts.ones((2,))})
    found = ts.train.restore(f"{folder}/model.safetensors", {"w": ts.zeros((2,))})

found["w"]""",
    "tessera.profile.KernelEvent": """found = ts.jit(lambda x: ts.ops.relu(x @ x.T)).profile(x)
[(event.kind, event.end >= event.start) for event in found.kernels]""",
    "tessera.profile.KernelLowering": """found = ts.jit(lambda x: ts.ops.relu(x @ x.T)).profile(x)
list(found.lowering().levels)""",
    "tessera.profile.MemoryTensor": """found = ts.jit(lambda x: ts.ops.softmax(x @ x.T) @ x).profile(x)
[(one.name, one.kind, one.bytes) for one in found.memory.tensors]""",
    "tessera.profile.MemoryTimeline": """found = ts.jit(lambda x: ts.ops.softmax(x @ x.T) @ x).profile(x)
found.memory.peak == found.memory.workspace""",
    "tessera.profile.Profile": """found = ts.jit(lambda x: ts.ops.relu(x @ x.T)).profile(x)
len(found.kernels), sorted(found.trace)""",
    "tessera.profile.RooflineRow": """found = ts.jit(lambda x: ts.ops.relu(x @ x.T)).profile(x)
[(row.kind, row.launches, row.flops, row.bytes) for row in found.roofline]""",
    "tessera.profile.write_report": """found = ts.jit(lambda x: ts.ops.relu(x @ x.T)).profile(x)
ts.profile.write_report("report.html", "a layer", found, series={"loss": [2.0, 1.5]}).name""",
    "tessera.Function": """f = ts.function(lambda x: x + 1)
isinstance(f, ts.Function), isinstance(f, ts.Jit)""",
    "tessera.autotune.TuningResult": """f = ts.jit(lambda x, y: x @ y)
isinstance(f.autotune(ts.ones((8, 8)), ts.ones((8, 8)), budget=1.0), ts.autotune.TuningResult)""",
    "tessera.autotune.TuningStep": """steps: list[ts.autotune.TuningStep] = []
f = ts.jit(lambda x, y: x @ y)
result = f.autotune(ts.ones((8, 8)), ts.ones((8, 8)), budget=1.0, progress=steps.append)""",
    "tessera.autotune.Online": """f = ts.jit(lambda x: x * 2.0)
with ts.autotune.online(f, budget=1.0) as tuning:
    y = f(x)
isinstance(tuning, ts.autotune.Online), tuning.stopped""",
    "tessera.autotune.OnlineProgram": """f = ts.jit(lambda x: x * 2.0)
with ts.autotune.online(f, budget=1.0, memory=1) as tuning:
    y = f(x)
[isinstance(one, ts.autotune.OnlineProgram) for one in tuning.report()]""",
    "tessera.autotune.CollectiveChoice": """choice = ts.autotune.CollectiveChoice("all_gather", 4, 1024, "tree", ())
choice.algorithm""",
    "tessera.autotune.CollectiveTuning": """found = ts.autotune.CollectiveTuning(4, (), "database", 0.0)
str(found)""",
    "tessera.autotune.collectives": """try:
    ts.autotune.collectives(ranks=1)
except ts.TesseraError as error:
    print(error.code)""",
    "tessera.autotune.cache": """signature = ts.autotune.signature(op="softmax", shape=(64, 64), arch="GB200")
ts.autotune.cache.lookup(signature)""",
    "tessera.autotune.measurements": "ts.autotune.measurements() >= 0",
    "tessera.autotune.plan": """signature = ts.autotune.signature(op="matmul", shape=(64, 64, 64), arch="GB200")
plan = ts.autotune.plan({"tiles": [(64, 64, 64), (32, 64, 64)]}, constraints={"HBM_util": "<0.85"}, signature=signature)
len(plan.plans)""",
    "tessera.autotune.search": """signature = ts.autotune.signature(op="matmul", shape=(64, 64, 64), arch="GB200")
ts.autotune.search(ts.autotune.plan({"rsmmag": [True]}, signature=signature)).source""",
    "tessera.autotune.tune": """f = ts.jit(lambda x, mode: x @ mode)
result = ts.autotune.tune(f, (ts.ones((8, 8)),), {"mode": ts.ones((8, 8))}, budget=1.0)""",
    "tessera.effects.ALL": "sorted(ts.effects.ALL)",
    "tessera.effects.KINDS": "ts.effects.KINDS",
    "tessera.effects.PURE": "ts.effects.PURE",
    "tessera.effects.may_swap": 'ts.effects.may_swap({"random"}, {"io"}), ts.effects.may_swap({"io"}, {"io"})',
    "tessera.effects.ordered": """@ts.jit
@ts.deterministic
def f(x, n):
    with ts.effects.ordered():
        return ts.ops.scatter_add(x, n, x, ordered=False)

f(x, n)""",
    "tessera.effects.seeded": """@ts.jit
@ts.deterministic
def f():
    with ts.effects.seeded(0):
        return ts.random.uniform(ts.random.key(), (2,))

f().tolist() == f().tolist()""",
    "tessera.random.bernoulli": "ts.random.bernoulli(key, 0.5, (4,))",
    "tessera.random.alpha_dropout": "ts.random.alpha_dropout(x, key, 0.5)",
    "tessera.random.beta": "ts.random.beta(key, (2,), 2.0, 0.5)",
    "tessera.random.binomial": "ts.random.binomial(key, (4,), 10, 0.3)",
    "tessera.random.chi_square": "ts.random.chi_square(key, (2,), 4)",
    "tessera.random.dirichlet": "ts.random.dirichlet(key, y)",
    "tessera.random.feature_dropout": "ts.random.feature_dropout(upward, key, 0.5).shape",
    "tessera.random.gamma": "ts.random.gamma(key, (2,), 2.5)",
    "tessera.random.geometric": "ts.random.geometric(key, (4,), 0.2)",
    "tessera.random.gumbel_softmax": "ts.random.gumbel_softmax(key, x, hard=True)",
    "tessera.random.lognormal": "ts.random.lognormal(key, (2,))",
    "tessera.random.maxwell": "ts.random.maxwell(key, (2,))",
    "tessera.random.pareto": "ts.random.pareto(key, (2,), 3.0)",
    "tessera.random.poisson": "ts.random.poisson(key, (4,), 3.5)",
    "tessera.random.rademacher": "ts.random.rademacher(key, (4,))",
    "tessera.random.rayleigh": "ts.random.rayleigh(key, (2,))",
    "tessera.random.student_t": "ts.random.student_t(key, (2,), 4)",
    "tessera.random.triangular": "ts.random.triangular(key, (2,), 0.0, 1.0, 3.0)",
    "tessera.random.weibull": "ts.random.weibull(key, (2,), 1.5)",
    "tessera.random.bits": "ts.random.bits(key, (2,))",
    "tessera.random.dropout": "ts.random.dropout(x, key, 0.5)",
    "tessera.random.fold": "ts.random.uniform(ts.random.fold(key, 7), (2,))",
    "tessera.random.categorical": "ts.random.categorical(key, x)",
    "tessera.random.cauchy": "ts.random.cauchy(key, (2,))",
    "tessera.random.choice": "ts.random.choice(key, 5, (3,), replace=False)",
    "tessera.random.exponential": "ts.random.exponential(key, (2,))",
    "tessera.random.gumbel": "ts.random.gumbel(key, (2,))",
    "tessera.random.laplace": "ts.random.laplace(key, (2,))",
    "tessera.random.logistic": "ts.random.logistic(key, (2,))",
    "tessera.random.multivariate_normal": "ts.random.multivariate_normal(key, y, x, (2,))",
    "tessera.random.permutation": "ts.random.permutation(key, 5)",
    "tessera.random.randint": "ts.random.randint(key, (4,), 0, 10)",
    "tessera.random.truncated_normal": "ts.random.truncated_normal(key, (2,))",
    "tessera.random.normal": "ts.random.normal(key, (2, 2))",
    "tessera.random.record": "with ts.random.run(5):\n    print(ts.random.record().seed)",
    "tessera.random.split": "first, second = ts.random.split(key)\nts.random.uniform(second, (2,))",
    "tessera.stdlib.efficient_layernorm": "ts.stdlib.efficient_layernorm(x, ts.ones(2), ts.zeros(2))",
    "tessera.stdlib.flash_attention_2": "ts.stdlib.flash_attention_2(q, k, v).shape",
    "tessera.stdlib.rotary_embedding": "ts.stdlib.rotary_embedding(q, ts.ones((3, 2)), ts.zeros((3, 2))).shape",
    "tessera.stdlib.stable_softmax": "ts.stdlib.stable_softmax(x)",
    "tessera.ops.epilogue.ACTIVATIONS": "sorted(ts.ops.epilogue.ACTIVATIONS)",
    "tessera.ops.epilogue.EpilogueChain": """e = ts.ops.epilogue
chain = e.chain([e.bias(y), e.act("relu")])
type(chain).__name__""",
    "tessera.ops.epilogue.Step": "type(ts.ops.epilogue.bias(y)).__name__",
    "tessera.ops.epilogue.act": """e = ts.ops.epilogue
ts.jit(lambda x: e.chain([e.act("relu")])(x @ x))(x)""",
    "tessera.ops.epilogue.bias": """e = ts.ops.epilogue
ts.jit(lambda x, y: e.chain([e.bias(y)])(x @ x))(x, y)""",
    "tessera.ops.epilogue.dropout": """e = ts.ops.epilogue
ts.jit(lambda x, key: e.chain([e.dropout(0.5, key)])(x @ x))(x, key)""",
    "tessera.ops.epilogue.residual": """e = ts.ops.epilogue
ts.jit(lambda x: e.chain([e.residual(x)])(x @ x))(x)""",
    "tessera.cuda.is_available": "ts.cuda.is_available() in (True, False)",
}
"""Programs of single names, by their full name."""

ON_A_GPU = {
    "POOL": "ts.cuda.POOL",
    "CudaTensor": "y = ts.cuda.array([1.0, 2.0]) * 2.0\ny.cpu()",
    "Event": "start, end = ts.cuda.Event(), ts.cuda.Event()\nstart.record()\nf(x)\nend.record()\n"
    "end.synchronize()\nend.milliseconds_since(start)",
    "Graph": "with ts.cuda.capture() as graph:\n    y = f(x)\ngraph.replay()",
    "Stream": "side = ts.cuda.Stream()\nwith ts.cuda.stream(side):\n    y = f(x)\nside.synchronize()",
    "array": "ts.cuda.array([[1.0, 2.0]]).device",
    "capture": "with ts.cuda.capture() as graph:\n    y = f(x)\ngraph.replay()",
    "current_stream": "ts.cuda.current_stream()",
    "driver": "ts.cuda.driver()",
    "empty": "ts.cuda.empty((2, 3), ts.bf16).shape",
    "metrics": "f(x)\nts.cuda.metrics()",
    "race_check": "with ts.cuda.race_check() as log:\n    f(x)",
    "stream": "side = ts.cuda.Stream()\nwith ts.cuda.stream(side):\n    y = f(x)",
    "synchronize": "f(x)\nts.cuda.synchronize()",
    "tensor_map_counts": "f(x)\nts.cuda.tensor_map_counts()",
    "write": "x = ts.cuda.empty((2,), ts.f32)\nx.write([1.0, 2.0])",
}
"""Programs of `ts.cuda`, which are shown and not run: they need a GPU. `f` is a jitted function, `x` a tensor there."""

WITH_TORCH = {
    "TorchFunction": "wrap(ts.jit(lambda x: x * 2.0))(torch.ones(3))",
    "run": "run(ts.jit(lambda x: x * 2.0), (torch.ones(3),))",
    "wrap": "double = wrap(ts.jit(lambda x: x * 2.0), ts.jit(lambda x, y, dy: dy * 2.0))\n"
    "double(torch.ones(3, requires_grad=True)).sum().backward()",
}
"""Programs of `tessera.interop.torch`, which are shown and not run: they need PyTorch."""
