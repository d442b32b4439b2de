// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Each op says what is wrong with its operands and attributes in its own words, with the sizes that disagree.

// CHECK: error[T0301]: `concat` needs equal sizes: `xs[0].shape[1] = 3` and `xs[1].shape[1] = 4` differ
tgraph.func @concat(%x0: !tgraph.tensor<[2, 3], f32>, %x1: !tgraph.tensor<[2, 4], f32>) -> !tgraph.tensor<[4, 3], f32> {
  %0 = tgraph.concat %x0, %x1 {axis = 0} : (!tgraph.tensor<[2, 3], f32>, !tgraph.tensor<[2, 4], f32>) -> !tgraph.tensor<[4, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `attention` needs heads of `q` to be a multiple of those of `k`: 2 and 3
tgraph.func @attention(%x0: !tgraph.tensor<[1, 2, 8, 16], f32>, %x1: !tgraph.tensor<[1, 3, 8, 16], f32>, %x2: !tgraph.tensor<[1, 3, 8, 16], f32>) -> !tgraph.tensor<[1, 2, 8, 16], f32> {
  %0 = tgraph.attention %x0, %x1, %x2 : (!tgraph.tensor<[1, 2, 8, 16], f32>, !tgraph.tensor<[1, 3, 8, 16], f32>, !tgraph.tensor<[1, 3, 8, 16], f32>) -> !tgraph.tensor<[1, 2, 8, 16], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 16], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `debug_print` has 1 values, which `{} and {}` cannot show
tgraph.func @debug_print(%x0: !tgraph.tensor<[2], f32>) {
  tgraph.debug_print %x0 {format = "{} and {}"} : (!tgraph.tensor<[2], f32>) -> ()
  tgraph.return
}
// -----
// CHECK: error[T0301]: `all_gather` has no axis 2 on a value of rank 2
tgraph.func @all_gather(%x0: !tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[4, 3], f32> {
  %0 = tgraph.all_gather %x0 {axis = "dp", size = [2], dim = 2} : (!tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[4, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `reduce_scatter` divides `x.shape[0] = 3` among the 2 ranks of `dp`, which must come out even (3 and 2)
tgraph.func @reduce_scatter(%x0: !tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[1, 4], f32> {
  %0 = tgraph.reduce_scatter %x0 {axis = "dp", size = [2], dim = 0} : (!tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[1, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `all_to_all` divides `x.shape[0] = 3` among the 2 ranks of `dp`, which must come out even (3 and 2)
tgraph.func @all_to_all(%x0: !tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[1, 8], f32> {
  %0 = tgraph.all_to_all %x0 {axis = "dp", size = [2], split = 0, concat = 1} : (!tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[1, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `dot_general` pairs axis 1 of [2, 3] with axis 0 of [4, 5], which differ (3 and 4)
tgraph.func @dot_general(%x0: !tgraph.tensor<[2, 3], f32>, %x1: !tgraph.tensor<[4, 5], f32>) -> !tgraph.tensor<[2, 5], f32> {
  %0 = tgraph.dot_general %x0, %x1 {lhs_contract = [1], rhs_contract = [0]} : (!tgraph.tensor<[2, 3], f32>, !tgraph.tensor<[4, 5], f32>) -> !tgraph.tensor<[2, 5], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 5], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `relu` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @relu(%x0: !tgraph.tensor<[2], bool>) -> !tgraph.tensor<[2], bool> {
  %0 = tgraph.relu %x0 : (!tgraph.tensor<[2], bool>) -> !tgraph.tensor<[2], bool>
  tgraph.return %0 : (!tgraph.tensor<[2], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `sin` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of i32
tgraph.func @sin(%x0: !tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32> {
  %0 = tgraph.sin %x0 : (!tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32>
  tgraph.return %0 : (!tgraph.tensor<[2], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `tanh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of i32
tgraph.func @tanh(%x0: !tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32> {
  %0 = tgraph.tanh %x0 : (!tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32>
  tgraph.return %0 : (!tgraph.tensor<[2], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `sub` cannot broadcast [2] with [3]: `x.shape[0] = 2` and `y.shape[0] = 3` differ
tgraph.func @sub(%x0: !tgraph.tensor<[2], f32>, %x1: !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.sub %x0, %x1 : (!tgraph.tensor<[2], f32>, !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `div` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of i32
tgraph.func @div(%x0: !tgraph.tensor<[2], i32>, %x1: !tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32> {
  %0 = tgraph.div %x0, %x1 : (!tgraph.tensor<[2], i32>, !tgraph.tensor<[2], i32>) -> !tgraph.tensor<[2], i32>
  tgraph.return %0 : (!tgraph.tensor<[2], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `maximum` needs operands of one dtype, got `x` of f32 and `y` of f64
tgraph.func @maximum(%x0: !tgraph.tensor<[2], f32>, %x1: !tgraph.tensor<[2], f64>) -> !tgraph.tensor<[2], f32> {
  %0 = tgraph.maximum %x0, %x1 : (!tgraph.tensor<[2], f32>, !tgraph.tensor<[2], f64>) -> !tgraph.tensor<[2], f32>
  tgraph.return %0 : (!tgraph.tensor<[2], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `minimum` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @minimum(%x0: !tgraph.tensor<[2], bool>, %x1: !tgraph.tensor<[2], bool>) -> !tgraph.tensor<[2], bool> {
  %0 = tgraph.minimum %x0, %x1 : (!tgraph.tensor<[2], bool>, !tgraph.tensor<[2], bool>) -> !tgraph.tensor<[2], bool>
  tgraph.return %0 : (!tgraph.tensor<[2], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `where` takes bool, got `condition` of i32
tgraph.func @where(%x0: !tgraph.tensor<[2], i32>, %x1: !tgraph.tensor<[2], f32>, %x2: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32> {
  %0 = tgraph.where %x0, %x1, %x2 : (!tgraph.tensor<[2], i32>, !tgraph.tensor<[2], f32>, !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32>
  tgraph.return %0 : (!tgraph.tensor<[2], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `clamp` cannot broadcast [4] with [3] with []: `x.shape[0] = 4` and `low.shape[0] = 3` differ
tgraph.func @clamp(%x0: !tgraph.tensor<[4], f32>, %x1: !tgraph.tensor<[3], f32>, %x2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.clamp %x0, %x1, %x2 : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[3], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: an epilogue keeps the shape of its contraction, [2], and this gives [4]
tgraph.func @fused(%x0: !tgraph.tensor<[4], f32>, %x1: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.fused %x0, %x1 : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `index_legal` needs integer `indices`, got f32
tgraph.func @index_legal(%x0: !tgraph.tensor<[4, 8], f32>, %x1: !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[3, 8], f32> {
  %0 = tgraph.index_legal %x0, %x1 {axes = [0]} : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[3, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `take` has no axis 2 on a value of rank 2
tgraph.func @take(%x0: !tgraph.tensor<[4, 8], f32>, %x1: !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[3, 8], f32> {
  %0 = tgraph.take %x0, %x1 {axis = 2} : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[3, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[3, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `embedding` needs a table [rows, size], got [4]
tgraph.func @embedding(%x0: !tgraph.tensor<[4], f32>, %x1: !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.embedding %x0, %x1 : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `reshape` cannot give [2, 3] the shape [7]: it has 6 elements, the new shape 7
tgraph.func @reshape(%x0: !tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[7], f32> {
  %0 = tgraph.reshape %x0 {shape = [7]} : (!tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[7], f32>
  tgraph.return %0 : (!tgraph.tensor<[7], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `transpose` needs each axis of [2, 3] once, got (0, 0)
tgraph.func @transpose(%x0: !tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[2, 2], f32> {
  %0 = tgraph.transpose %x0 {axes = [0, 0]} : (!tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[2, 2], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 2], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `slice` of `x.shape[0] = 8` from 0 to 4 by 0: the step cannot be 0
tgraph.func @slice(%x0: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.slice %x0 {start = [0], stop = [4], step = [0]} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `flip` has no axis 2 on a value of rank 2
tgraph.func @flip(%x0: !tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[2, 3], f32> {
  %0 = tgraph.flip %x0 {axes = [2]} : (!tgraph.tensor<[2, 3], f32>) -> !tgraph.tensor<[2, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[2, 3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `split` needs equal sizes: `x.shape[0] = 6` and 2 + 3 = 5 differ
tgraph.func @split(%x0: !tgraph.tensor<[6], f32>) -> (!tgraph.tensor<[2], f32>, !tgraph.tensor<[3], f32>) {
  %0, %1 = tgraph.split %x0 {sizes = [2, 3], axis = 0} : (!tgraph.tensor<[6], f32>) -> (!tgraph.tensor<[2], f32>, !tgraph.tensor<[3], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[2], f32>, !tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `prefetch`: there is no memory `disk`; there are register, shared, tmem, global, managed, host
tgraph.func @prefetch(%x0: !tgraph.tensor<[6], f32>) -> !tgraph.tensor<[6], f32> {
  %0 = tgraph.prefetch %x0 {space = "disk"} : (!tgraph.tensor<[6], f32>) -> !tgraph.tensor<[6], f32>
  tgraph.return %0 : (!tgraph.tensor<[6], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `round_stochastic` cannot broadcast [6] with [5]: `x.shape[0] = 6` and `bits.shape[0] = 5` differ
tgraph.func @round_stochastic(%x0: !tgraph.tensor<[6], f32>, %x1: !tgraph.tensor<[5], u32>) -> !tgraph.tensor<[6], bf16> {
  %0 = tgraph.round_stochastic %x0, %x1 {format = "bf16"} : (!tgraph.tensor<[6], f32>, !tgraph.tensor<[5], u32>) -> !tgraph.tensor<[6], bf16>
  tgraph.return %0 : (!tgraph.tensor<[6], bf16>) -> ()
}
// -----
// CHECK: error[T0301]: `max` of no elements has no value: `x.shape[1] = 0`
tgraph.func @max(%x0: !tgraph.tensor<[3, 0], f32>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.max %x0 {axes = [1]} : (!tgraph.tensor<[3, 0], f32>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scatter` needs equal sizes: 3 and `updates.shape[0] = 2` differ
tgraph.func @scatter(%x0: !tgraph.tensor<[4, 8], f32>, %x1: !tgraph.tensor<[3], i64>, %x2: !tgraph.tensor<[2, 8], f32>) -> !tgraph.tensor<[4, 8], f32> {
  %0 = tgraph.scatter %x0, %x1, %x2 : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[3], i64>, !tgraph.tensor<[2, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scatter_rows` needs integer `indices`, got f32
tgraph.func @scatter_rows(%x0: !tgraph.tensor<[4, 8], f32>, %x1: !tgraph.tensor<[3, 8], f32>, %x2: !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[4, 8], f32> {
  %0 = tgraph.scatter_rows %x0, %x1, %x2 {mode = "add"} : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[3, 8], f32>, !tgraph.tensor<[3], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `kv_write` takes two tensors of 4 dims and a number, got [1, 2, 8, 4] f32, [1, 2, 1, 4] f32 and [2] i64
tgraph.func @kv_write(%x0: !tgraph.tensor<[1, 2, 8, 4], f32>, %x1: !tgraph.tensor<[2], i64>, %x2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %x0, %x1, %x2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[2], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `kv_append` needs equal sizes: heads of the cache 2 and `k.shape[1] = 3` differ
tgraph.func @kv_append(%x0: !tgraph.tensor<[1, 2, 8, 4], f32>, %x1: !tgraph.tensor<[1, 2, 8, 4], f32>, %x2: !tgraph.tensor<[], i64>, %x3: !tgraph.tensor<[1, 3, 1, 4], f32>, %x4: !tgraph.tensor<[1, 3, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) {
  %0, %1, %2 = tgraph.kv_append %x0, %x1, %x2, %x3, %x4 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 3, 1, 4], f32>, !tgraph.tensor<[1, 3, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK: error[T0301]: `kv_prune` needs `keep` of at least 0, got -1
tgraph.func @kv_prune(%x0: !tgraph.tensor<[1, 2, 8, 4], f32>, %x1: !tgraph.tensor<[1, 2, 8, 4], f32>, %x2: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) {
  %0, %1, %2 = tgraph.kv_prune %x0, %x1, %x2 {keep = -1} : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) -> ()
}
// -----
// CHECK: error[T0304]: these are no elements of an array<float32, [2]>: cannot reshape array of size 1 into shape (2,)
tgraph.func @constant() -> !tgraph.tensor<[2], f32> {
  %0 = tgraph.constant {value = array<f32, [2], [1.0]>} : () -> !tgraph.tensor<[2], f32>
  tgraph.return %0 : (!tgraph.tensor<[2], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `fori`: value 0 of what the body gives is [] i64, and must be [] f32
tgraph.func @fori(%x0: !tgraph.tensor<[], i64>, %x1: !tgraph.tensor<[], i64>, %x2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.fori %x0, %x1, %x2 {carried = 1} ({
  ^bb0(%i: !tgraph.tensor<[], i64>, %v: !tgraph.tensor<[], f32>):
    tgraph.yield %i : (!tgraph.tensor<[], i64>) -> ()
  }) : (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `scan` needs equal sizes: `input 1.shape[0] = 5` and the length 4 differ
tgraph.func @scan(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[4], f32>, %x2: !tgraph.tensor<[5], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[4], f32>) {
  %0, %1 = tgraph.scan %x0, %x1, %x2 {carried = 1, scanned = 2} ({
  ^bb0(%total: !tgraph.tensor<[], f32>, %x: !tgraph.tensor<[], f32>, %y: !tgraph.tensor<[], f32>):
    %2 = tgraph.add %total, %x : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %2, %2 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], f32>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[5], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[4], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[4], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.checkpoint` is !tgraph.tensor<[2], f32> by its shape rule, not !tgraph.tensor<[3], f32>
tgraph.func @checkpoint(%x0: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.checkpoint %x0 ({
  ^bb0(%v: !tgraph.tensor<[2], f32>):
    %1 = tgraph.sin %v : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32>
    tgraph.yield %1 : (!tgraph.tensor<[2], f32>) -> ()
  }) : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.optimization_barrier` is !tgraph.tensor<[2], f32> by its shape rule, not !tgraph.tensor<[3], f32>
tgraph.func @optimization_barrier(%x0: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.optimization_barrier %x0 : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
// -----
// CHECK: error[T0304]: expected a value of kind `str`
tgraph.func @checkpoint_name(%x0: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32> {
  %0 = tgraph.checkpoint_name %x0 {label = 3} : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32>
  tgraph.return %0 : (!tgraph.tensor<[2], f32>) -> ()
}

// -----
// CHECK: error[T0301]: result 0 of `tgraph.saved_value` is !tgraph.tensor<[2], f32> by its shape rule, not !tgraph.tensor<[3], f32>
tgraph.func @saved_value(%x0: !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32> {
  %0 = tgraph.saved_value %x0 : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[3], f32>
  tgraph.return %0 : (!tgraph.tensor<[3], f32>) -> ()
}
