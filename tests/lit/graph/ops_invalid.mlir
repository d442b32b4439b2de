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
