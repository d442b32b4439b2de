// RUN: tessera-opt %s -p schedule-place-buffers | filecheck %s

// A temporary lives until its last use; a result is computed into its own memory, through another shape too; what has
// no memory of its own to return is copied.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    tsched.guard {left = A, right = 2*B, what = "halves"}
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[A], f32>
// CHECK-NEXT:    tsched.call @k(%x, %[[T]]) sizes = [A] {flops = A, bytes = 8*A}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[A], f32>
// CHECK-NEXT:    tsched.call @k(%[[T]], %[[Y]]) sizes = [A]
// CHECK-NEXT:    tsched.free %[[T]]
// CHECK-NEXT:    %[[V:[a-z0-9]+]] = tsched.alias %[[Y]] : !ttile.buffer<[2, B], f32>
// CHECK-NEXT:    %[[X:[a-z0-9]+]] = tsched.alloc {output = 1} : !ttile.buffer<[A], f32>
// CHECK-NEXT:    tsched.copy %x, %[[X]]
// CHECK-NEXT:    tsched.return %[[V]], %[[X]]
tsched.module @main(%x: !tgraph.tensor<[A], f32>) -> (!tgraph.tensor<[2, B], f32>, !tgraph.tensor<[A], f32>) attributes {guards = [[dim<A>, dim<2*B>, "halves"]]} {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<A>]], flops = A, bytes = 8*A, kernels = ["k"]} : !tgraph.tensor<[A], f32>
  %b = tsched.fuse @k(%a) {kind = "map", sizes = [["s0", dim<A>]], kernels = ["k"]} : !tgraph.tensor<[A], f32>
  %c = tsched.alias %b : !tgraph.tensor<[2, B], f32>
  tsched.return %c, %x
}

// A donated argument is written over and returned without a copy, once; a copy of it has memory of its own.
// CHECK-LABEL: tsched.module @given(
// CHECK-NEXT:    tsched.call @k(%x, %x) sizes = [A]
// CHECK-NEXT:    %[[V:[a-z0-9]+]] = tsched.alias %x : !ttile.buffer<[2, B], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 1} : !ttile.buffer<[A], f32>
// CHECK-NEXT:    tsched.copy %x, %[[Y]]
// CHECK-NEXT:    tsched.return %[[V]], %[[Y]]
tsched.module @given(%x: !tgraph.tensor<[A], f32>) -> (!tgraph.tensor<[2, B], f32>, !tgraph.tensor<[A], f32>) attributes {tessera.donated = [0]} {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<A>]], kernels = ["k"], in_place = [0]} : !tgraph.tensor<[A], f32>
  %b = tsched.alias %a : !tgraph.tensor<[2, B], f32>
  tsched.return %b, %a
}

// What the program made itself is written over in the memory of its result.
// CHECK-LABEL: tsched.module @own(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[A], f32>
// CHECK-NEXT:    tsched.call @k(%x, %[[Y]]) sizes = [A]
// CHECK-NEXT:    tsched.call @k(%[[Y]], %[[Y]]) sizes = [A]
// CHECK-NEXT:    tsched.return %[[Y]]
tsched.module @own(%x: !tgraph.tensor<[A], f32>) -> !tgraph.tensor<[A], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<A>]], kernels = ["k"]} : !tgraph.tensor<[A], f32>
  %b = tsched.fuse @k(%a) {kind = "map", sizes = [["s0", dim<A>]], kernels = ["k"], in_place = [0]} : !tgraph.tensor<[A], f32>
  tsched.return %b
}

// A loop passes two buffers for what it carries, and its body writes to the one that is next.
// CHECK-LABEL: tsched.module @loop(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[N], f32>
// CHECK-NEXT:    tsched.copy %x, %[[A]]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[N], f32>
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.for %[[A]], %[[B]] {carried = 1, length = 3} ({
// CHECK-NEXT:    ^bb0(%[[I:[a-z0-9]+]]: !ttile.buffer<[N], f32>, %[[O:[a-z0-9]+]]: !ttile.buffer<[N], f32>):
// CHECK-NEXT:      tsched.call @k(%[[I]], %[[O]]) sizes = [N]
// CHECK-NEXT:      tsched.yield
// CHECK-NEXT:    }) : !ttile.buffer<[N], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
// CHECK-NEXT:    tsched.copy %[[R]], %[[Y]]
// CHECK-DAG:     tsched.free %[[A]]
// CHECK-DAG:     tsched.free %[[B]]
// CHECK:         tsched.return %[[Y]]
tsched.module @loop(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %r = tsched.for %x {carried = 1, length = 3} ({
  ^bb0(%i: !tgraph.tensor<[N], f32>):
    %b = tsched.fuse @k(%i) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k"]} : !tgraph.tensor<[N], f32>
    tsched.yield %b
  }) : !tgraph.tensor<[N], f32>
  tsched.return %r
}

// What every iteration leaves where it found it has one buffer, here that of the result.
// CHECK-LABEL: tsched.module @loop_in_place(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
// CHECK-NEXT:    tsched.copy %x, %[[Y]]
// CHECK-NEXT:    tsched.for {length = 3} ({
// CHECK-NEXT:      tsched.call @k(%[[Y]], %[[Y]]) sizes = [N]
// CHECK-NEXT:      tsched.yield
// CHECK:         tsched.return %[[Y]]
tsched.module @loop_in_place(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %r = tsched.for %x {carried = 1, length = 3} ({
  ^bb0(%i: !tgraph.tensor<[N], f32>):
    %b = tsched.fuse @k(%i) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k"], in_place = [0]} : !tgraph.tensor<[N], f32>
    tsched.yield %b
  }) : !tgraph.tensor<[N], f32>
  tsched.return %r
}

// What kernels of a group take behind its inputs and outputs is memory between them.
// CHECK-LABEL: tsched.module @between(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[2*N], f64>
// CHECK-NEXT:    tsched.call @first(%x, %[[Y]], %[[T]]) sizes = [N]
// CHECK-NEXT:    tsched.call @last(%x, %[[Y]], %[[T]]) sizes = [N] {flops = 0, bytes = 0, time = 0, part = 1}
// CHECK-NEXT:    tsched.free %[[T]]
// CHECK-NEXT:    tsched.return %[[Y]]
tsched.module @between(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %r = tsched.fuse @first(%x) {kind = "row", sizes = [["s0", dim<N>]], kernels = ["first", "last"]} : !tgraph.tensor<[N], f32>
  tsched.return %r
}
ttile.kernel @k(%x: !ttile.buffer<[s0], f32>, %out: !ttile.buffer<[s0], f32>) attributes {symbols = ["s0"], grid = [s0], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %t = ttile.load %x, %p {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.buffer<[s0], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.store %t, %out, %p {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[s0], f32>, !ttile.index) -> ()
  ttile.return
}
ttile.kernel @first(%x: !ttile.buffer<[s0], f32>, %out: !ttile.buffer<[s0], f32>, %t: !ttile.buffer<[2*s0], f64>) attributes {symbols = ["s0"], grid = [s0], writes = [2]} {
  ttile.return
}
ttile.kernel @last(%x: !ttile.buffer<[s0], f32>, %out: !ttile.buffer<[s0], f32>, %t: !ttile.buffer<[2*s0], f64>) attributes {symbols = ["s0"], grid = [s0], writes = [1]} {
  ttile.return
}
