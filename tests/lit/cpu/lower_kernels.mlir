// RUN: tessera-opt %s --split -p schedule-form-groups,schedule-emit-tiles | filecheck %s --check-prefix TILE
// RUN: tessera-opt %s --split -p 'schedule-form-groups,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2"]}' | filecheck %s

// Dims that all accesses walk as one are one: a tile knows nothing of whole steps.
// TILE-LABEL: tsched.module @map(
// TILE:       ttile.kernel @[[NAME:.*]](%[[X:.*]]: !ttile.buffer<[B*C], f32>, %[[Y:.*]]: !ttile.buffer<[B*C], f32>)
// TILE:         ttile.for %{{.*}}, %{{.*}} {step = 16}
// TILE:           ttile.load %[[X]], %[[AT:.*]] {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [B*C]}
// TILE-NEXT:      ttile.elementwise %{{.*}} {fn = "relu"}
// TILE-NEXT:      ttile.store %{{.*}}, %[[Y]], %[[AT]] {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [B*C]}

// Whole steps have no guards, and one tail has them all.
// CHECK-LABEL: tsched.module @map(
// CHECK:       ttarget.kernel @{{.*}}(%[[X:.*]]: !ttile.buffer<[B*C], f32>, %[[Y:.*]]: !ttile.buffer<[B*C], f32>) attributes {symbols = ["B", "C"], writes = [1], lanes = 8
// CHECK-NEXT:    ttarget.programs {grid = [((B*C + 4095) floordiv 4096)]}
// CHECK:           ttarget.loop %[[LOW:.*]], %[[HIGH:.*]] {step = 16}
// CHECK:             ttarget.load %[[X]], %{{.*}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4} :
// CHECK-NEXT:        ttarget.elementwise %{{.*}} {fn = "relu"}
// CHECK-NEXT:        ttarget.store %{{.*}}, %[[Y]], %{{.*}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4} :
// CHECK:           ttarget.tail %[[LOW]], %[[HIGH]] {step = 16}
// CHECK:             ttarget.load %[[X]], %{{.*}}, align = 4, guarded = ["_p0"], bounds = [B*C]}
// CHECK:             ttarget.store %{{.*}}, %[[Y]], %{{.*}}, align = 4, guarded = ["_p0"], bounds = [B*C]}
tgraph.func @map(%x: !tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32> attributes {names = ["x"]} {
  %0 = tgraph.relu %x : (!tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, C], f32>) -> ()
}
// -----
// A size that steps divide needs neither tail nor guards.
// CHECK-LABEL: tsched.module @even(
// CHECK:           ttarget.loop
// CHECK-NOT:       guarded
// CHECK-NOT:       ttarget.tail
// CHECK:       ttarget.return
tgraph.func @even(%x: !tgraph.tensor<[B, 32], f32>) -> !tgraph.tensor<[B, 32], f32> attributes {names = ["x"]} {
  %0 = tgraph.relu %x : (!tgraph.tensor<[B, 32], f32>) -> !tgraph.tensor<[B, 32], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, 32], f32>) -> ()
}
// -----
// A transpose is tiled in squares of lanes: both sides then have a contiguous axis.
// CHECK-LABEL: tsched.module @turned(
// CHECK:             ttarget.load %{{.*}} {coords = ["_p0", "_p1"], axes = ["_p0", "_p1"], offset = B*_p1 + _p0, pattern = "strided", align = 4, guarded = ["_p0"], bounds = [B]}
// CHECK-SAME:        !ttarget.vector<[8, 8], f32>
// CHECK:             ttarget.store %{{.*}} {coords = ["_p0", "_p1"], axes = ["_p0", "_p1"], offset = C*_p0 + _p1, pattern = "contiguous", align = 4, guarded = ["_p0"], bounds = [B]}
tgraph.func @turned(%x: !tgraph.tensor<[C, B], f32>) -> !tgraph.tensor<[B, C], f32> attributes {names = ["x"]} {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[C, B], f32>) -> !tgraph.tensor<[B, C], f32>
  %1 = tgraph.neg %0 : (!tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, C], f32>) -> ()
}
// -----
// A row is reduced in leaves of 1024, whose sums a tree joins. In a whole leaf no element is guarded; in the last one those
// out of bounds are replaced by the identity.
// TILE-LABEL: tsched.module @row(
// TILE:         %[[LEAVES:.*]] = ttile.scratch : () -> !ttile.buffer<[max(((C + 1023) floordiv 1024), 1), 1], f32>
// TILE:         ttile.for %{{.*}}, %{{.*}} {step = 1024}
// TILE:           ttile.for %{{.*}}, %{{.*}} {step = 16}
// TILE:             ttile.load %0{{.*}} {coords = ["_p0", "_r"], axes = ["_r"], map = [_p0, _r], bounds = [-1]}
// TILE-NEXT:        ttile.elementwise %{{.*}} {fn = "add"}
// TILE:           %[[LEAF:.*]] = ttile.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
// TILE:           ttile.store %[[LEAF]], %[[LEAVES]]
// TILE:         ttile.for %{{.*}}, %{{.*}} {step = 1}
// TILE:             ttile.load %0{{.*}} {coords = ["_p0", "_r"], axes = ["_r"], map = [_p0, _r], bounds = [C]}
// TILE-NEXT:        ttile.clip %{{.*}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = C, identity = 0}
// TILE-NEXT:        ttile.elementwise %{{.*}} {fn = "add"}
// TILE:           ttile.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttile.tile<[32], f32>) -> !ttile.tile<[], f32>
// TILE:         ttile.tree %[[LEAVES]], %{{.*}} {kind = "sum"}

// CHECK-LABEL: tsched.module @row(
// CHECK:         %[[LEAVES:.*]] = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[max(((C + 1023) floordiv 1024), 1), 1], f32>
// CHECK:         ttarget.loop %{{.*}}, %{{.*}} {step = 1024}
// CHECK-NOT:       ttarget.clip
// CHECK:           ttarget.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
// CHECK:         ttarget.loop %{{.*}}, %{{.*}} {step = 1}
// CHECK:           ttarget.tail %{{.*}}, %{{.*}} {step = 32}
// CHECK:             ttarget.clip %{{.*}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = C, identity = 0}
// CHECK:           ttarget.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
// CHECK:         ttarget.tree %[[LEAVES]], %{{.*}} {kind = "sum"}
tgraph.func @row(%x: !tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B], f32> attributes {names = ["x"]} {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
// -----
// Columns are reduced in parallel: a program has a strip of them, and goes over it for some lanes of a leaf at a time, which
// wait in scratch. Inside the strip and in whole leaves nothing is guarded; the last columns and the last leaf are.
// TILE-LABEL: tsched.module @column(
// TILE:         tsched.tile %{{.*}} candidates = [64, 32, 128, 16, 8] chosen = 64 {source = "default", knob = "row.columns"}
// TILE:         ttile.scratch {{.*}} !ttile.buffer<[256, 72], f32>
// TILE:         ttile.for %{{.*}}, %{{.*}} {step = 1024}
// TILE:           ttile.for %{{.*}}, %{{.*}} {step = 1}
// TILE:             ttile.for %{{.*}}, %{{.*}} {step = 8}
// TILE:               ttile.elementwise %{{.*}} {fn = "add"}
// TILE:           ttile.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttile.tile<[8, 8], f32>) -> !ttile.tile<[8], f32>
// TILE:         ttile.tree %{{.*}}, %{{.*}} {kind = "sum"}

// CHECK-LABEL: tsched.module @column(
// CHECK:       ttarget.programs {grid = [((C + 63) floordiv 64)]}
// CHECK:         ttarget.loop %{{.*}}, %{{.*}} {step = 1024}
// CHECK:             ttarget.loop %{{.*}}, %{{.*}} {step = 8}
// CHECK:               ttarget.load %{{.*}} {coords = ["_p0", "_r"], axes = ["_r", "_p0"], offset = C*_r + _p0, pattern = "contiguous", align = 4} :
// CHECK:             ttarget.tail %{{.*}}, %{{.*}} {step = 8}
// CHECK:               ttarget.load %{{.*}}, pattern = "contiguous", align = 4, guarded = ["_p0"], bounds = [C]}
// CHECK:           ttarget.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttarget.vector<[8, 8], f32>) -> !ttarget.vector<[8], f32>
// CHECK:         ttarget.loop %{{.*}}, %{{.*}} {step = 1}
// CHECK:           ttarget.tail %{{.*}}, %{{.*}} {step = 8}
// CHECK:               ttarget.load %{{.*}}, guarded = ["_r", "_p0"], bounds = [B, C]}
// CHECK:           ttarget.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttarget.vector<[8, 8], f32>) -> !ttarget.vector<[8], f32>
// CHECK:         ttarget.tree %{{.*}}, %{{.*}} {kind = "sum"}
tgraph.func @column(%x: !tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[C], f32> attributes {names = ["x"]} {
  %0 = tgraph.sum %x {axes = [0]} : (!tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[C], f32>
  tgraph.return %0 : (!tgraph.tensor<[C], f32>) -> ()
}
// -----
// A product is one op; what follows it is its epilogue. Each narrowing is a cast that names its rounding, in Tile and in
// Target: one where the sum ends, one after the bias, one after the function.
// TILE-LABEL: tsched.module @product(
// TILE:         ttile.dot
// TILE:         ttile.cast %{{.*}} {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
// TILE:         ttile.cast %{{.*}} : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
// TILE:         ttile.elementwise %{{.*}} {fn = "add"}
// TILE-NEXT:    ttile.cast %{{.*}} {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
// TILE:         ttile.elementwise %{{.*}} {fn = "relu"}
// TILE-NEXT:    ttile.cast %{{.*}} {rounding = "nearest_even"} : (!ttile.tile<[64, 128], f32>) -> !ttile.tile<[64, 128], bf16>
// TILE-NOT:     rounding
// TILE:       ttile.return

// CHECK-LABEL: tsched.module @product(
// CHECK:       ttarget.gemm %{{.*}}, %{{.*}} {batch = [], m = B, n = C, k = K, lhs_offset = K*_m + _k, rhs_offset = C*_k + _n, lhs_dtype = bf16, rhs_dtype = bf16}
// CHECK-NEXT:  ^{{.*}}(%[[ROW:.*]]: !ttile.index, %[[COLUMN:.*]]: !ttile.index, %[[SUM:.*]]: !ttarget.vector<[1, 8], f32>):
// CHECK:         %[[CUT:.*]] = ttarget.cast %[[SUM]] {rounding = "nearest_even"} : (!ttarget.vector<[1, 8], f32>) -> !ttarget.vector<[1, 8], bf16>
// CHECK-NEXT:    ttarget.cast %[[CUT]] : (!ttarget.vector<[1, 8], bf16>) -> !ttarget.vector<[1, 8], f32>
// CHECK:         ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK-NEXT:    ttarget.cast %{{.*}} {rounding = "nearest_even"}
// CHECK:         ttarget.elementwise %{{.*}} {fn = "relu"}
// CHECK-NEXT:    ttarget.cast %{{.*}} {rounding = "nearest_even"}
// CHECK-NOT:     rounding
// CHECK:         ttarget.store %{{.*}}, %{{.*}}, %[[ROW]], %[[COLUMN]] {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = C*_m + _n, pattern = "contiguous", align = 2, guarded = ["_n"], bounds = [C]}
tgraph.func @product(%x: !tgraph.tensor<[B, K], bf16>, %w: !tgraph.tensor<[K, C], bf16>, %b: !tgraph.tensor<[C], bf16>) -> !tgraph.tensor<[B, C], bf16> attributes {names = ["x", "w", "b"]} {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[B, K], bf16>, !tgraph.tensor<[K, C], bf16>) -> !tgraph.tensor<[B, C], bf16>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[B, C], bf16>, !tgraph.tensor<[C], bf16>) -> !tgraph.tensor<[B, C], bf16>
  %2 = tgraph.relu %1 : (!tgraph.tensor<[B, C], bf16>) -> !tgraph.tensor<[B, C], bf16>
  tgraph.return %2 : (!tgraph.tensor<[B, C], bf16>) -> ()
}
// -----
// Every box of an assembly is a kernel that writes its part of the result.
// TILE-LABEL: tsched.module @joined(
// TILE:       ttile.kernel @[[FIRST:.*]](
// TILE:         ttile.store %{{.*}} {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [B]}
// TILE:       ttile.kernel @{{.*}}(
// TILE:         ttile.store %{{.*}} {coords = ["_p0"], axes = ["_p0"], map = [B + _p0], bounds = [4]}

// CHECK-LABEL: tsched.module @joined(
// CHECK:       ttarget.kernel
// CHECK:         ttarget.store %{{.*}} {coords = ["_p0"], axes = ["_p0"], offset = _p0, pattern = "contiguous", align = 4}
// CHECK:       ttarget.kernel
// CHECK:         ttarget.tail
// CHECK:           ttarget.store %{{.*}} {coords = ["_p0"], axes = ["_p0"], offset = B + _p0, pattern = "contiguous", align = 4, guarded = ["_p0"], bounds = [4]}
tgraph.func @joined(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[B + 4], f32> attributes {names = ["x", "y"]} {
  %0 = tgraph.concat %x, %y {axis = 0} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[B + 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[B + 4], f32>) -> ()
}
// -----
// What is prefetched is loaded with the cache lines after it asked for; what is not, is loaded as ever.
// CHECK-LABEL: tsched.module @prefetched(
// CHECK:       ttarget.kernel @{{.*}}(%[[X:.*]]: !ttile.buffer<[B*C], f32>, %[[W:.*]]: !ttile.buffer<[B*C], f32>,
// CHECK-DAG:     ttarget.load %[[X]], {{.*}} align = 4}
// CHECK-DAG:     ttarget.load %[[W]], {{.*}} prefetch = 512}
tgraph.func @prefetched(%x: !tgraph.tensor<[B, C], f32>, %w: !tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32> {
  %0 = tgraph.prefetch %w {space = "shared", overlap = "compute"} : (!tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32>
  %1 = tgraph.add %x, %0 : (!tgraph.tensor<[B, C], f32>, !tgraph.tensor<[B, C], f32>) -> !tgraph.tensor<[B, C], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, C], f32>) -> ()
}
