// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// The shape rule decides the result's type.
// CHECK: error[T0301]: result 0 of `tgraph.exp` is !tgraph.tensor<[B], f32> by its shape rule, not !tgraph.tensor<[4], f32>
// CHECK-NEXT: ops_invalid.mlir:[[# @LINE + 2]]:3
tgraph.func @wrong_result(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
// -----
// Two dims that may be equal are not until a guard says so.
// CHECK: error[T0301]: {{.*}}nothing says that B and C are equal
// CHECK: help: add it to `guards`
tgraph.func @unguarded(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[C], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.add %x, %y : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[C], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
// -----
// A value is defined before it is used.
// CHECK: error[T0301]: operand 0 of `tgraph.exp` is used before, or outside of where, it is defined
tgraph.func @late(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %1 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %1 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
// -----
// Attributes have names and kinds.
// CHECK: error[T0304]: `tgraph.sum` has no attribute `axis`; it has
tgraph.func @unknown_attribute(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.sum %x {axis = 0} : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `tgraph.add` has 2 operands (x, y), got 1
tgraph.func @too_few(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.add %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}
// -----
// CHECK: error[T0301]: the block of `tgraph.func` does not end in a terminator
tgraph.func @endless(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
}
// -----
// CHECK: error[T0304]: `@declared` is declared to give !tgraph.tensor<[4], f32>, but its end gives !tgraph.tensor<[B], f32>
tgraph.func @declared(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[4], f32> {
  tgraph.return %x : (!tgraph.tensor<[B], f32>) -> ()
}
// -----
// CHECK: error[T0304]: `B +` is not a dimension
tgraph.func @dim(%x: !tgraph.tensor<[B +], f32>) {
  tgraph.return
}
// -----
// CHECK: error[T0301]: `@twice` is defined twice
tgraph.func @twice() {
  tgraph.return
}
tgraph.func @twice() {
  tgraph.return
}
// -----
// CHECK: error[T0303]: this is IR of version 99, and this Tessera reads versions 1 to 4
builtin.module attributes {tessera.version = 99 : i64} {
}
// -----
// Steps of kernels end where segments do.
// CHECK: error[T0301]: `matmul` takes segments of a multiple of 256 elements of K, got 1000
tgraph.func @uneven_segments(%a: !tgraph.tensor<[M, 4000], f32>, %b: !tgraph.tensor<[4000, 8], f32>) -> !tgraph.tensor<[M, 8], f32> {
  %0 = tgraph.matmul %a, %b {segment = 1000} : (!tgraph.tensor<[M, 4000], f32>, !tgraph.tensor<[4000, 8], f32>) -> !tgraph.tensor<[M, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, 8], f32>) -> ()
}
// -----
// Partial results are those of segments.
// CHECK: error[T0301]: `matmul` gives partial results of segments, and `segment` does not say how long they are
tgraph.func @parts_of_nothing(%a: !tgraph.tensor<[M, 4000], f32>, %b: !tgraph.tensor<[4000, 8], f32>) -> !tgraph.tensor<[M, 8], f32> {
  %0 = tgraph.matmul %a, %b {partial = true} : (!tgraph.tensor<[M, 4000], f32>, !tgraph.tensor<[4000, 8], f32>) -> !tgraph.tensor<[M, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, 8], f32>) -> ()
}
// -----
// Partial results are along an axis.
// CHECK: error[T0301]: `join_segments` takes partial results along its first axis, got [] f32
tgraph.func @no_parts(%x: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.join_segments %x {dtype = f32} : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Both branches give the same.
// CHECK: error[T0301]: `size_cond`: {{.*}}
tgraph.func @branches(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.size_cond %x {size = 1} ({
  ^bb0(%y: !tgraph.tensor<[4], f32>):
    tgraph.yield %y : (!tgraph.tensor<[4], f32>) -> ()
  }, {
  ^bb1(%y: !tgraph.tensor<[4], f32>):
    %1 = tgraph.cast %y {dtype = bf16} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], bf16>
    tgraph.yield %1 : (!tgraph.tensor<[4], bf16>) -> ()
  }) : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
