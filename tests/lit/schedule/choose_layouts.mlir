// RUN: tessera-opt %s --split -p schedule-choose-layouts | filecheck %s

// Rows that go down the columns of `%x` read a copy of it, whose body has no view any more; what reads `%x` as it is
// reads it still.
// CHECK-LABEL: tsched.module @rows(
// CHECK-NEXT:    tsched.layout %x {order = [1, 0], candidates = {{\[}}[0, 1], [1, 0]], source = "static model"}
// CHECK-NEXT:    %[[COPY:[a-z0-9]+]] = tsched.fuse @[[MAP:map_[a-z0-9]+]](%x) {kind = "map"{{.*}} : !tgraph.tensor<[128, 64], f32>
// CHECK-NEXT:    %[[SUM:[a-z0-9]+]] = tsched.fuse @[[ROW:[a-z0-9_]+]](%[[COPY]], %y) {kind = "row", axes = [1]
// CHECK-NEXT:    %[[TWICE:[a-z0-9]+]] = tsched.fuse @twice(%x)
// CHECK-NEXT:    tsched.return %[[SUM]], %[[TWICE]]
// CHECK:       tgraph.func @twice(
// CHECK:       tgraph.func @[[MAP]](
// CHECK-NEXT:    tgraph.transpose %a0 {axes = [1, 0]}
// CHECK:       tgraph.func @[[ROW]](
// CHECK-NEXT:    tgraph.mul %a0, %a1
// CHECK-NOT:   tgraph.func @across
tsched.module @rows(%x: !tgraph.tensor<[64, 128], f32>, %y: !tgraph.tensor<[128, 64], f32>) -> (!tgraph.tensor<[128], f32>, !tgraph.tensor<[64, 128], f32>) {
  %0 = tsched.fuse @across(%x, %y) {kind = "row", axes = [1]} : !tgraph.tensor<[128], f32>
  %1 = tsched.fuse @twice(%x) {kind = "map"} : !tgraph.tensor<[64, 128], f32>
  tsched.return %0, %1
}
tgraph.func @across(%a0: !tgraph.tensor<[64, 128], f32>, %a1: !tgraph.tensor<[128, 64], f32>) -> !tgraph.tensor<[128], f32> {
  %0 = tgraph.transpose %a0 {axes = [1, 0]} : (!tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[128, 64], f32>
  %1 = tgraph.mul %0, %a1 : (!tgraph.tensor<[128, 64], f32>, !tgraph.tensor<[128, 64], f32>) -> !tgraph.tensor<[128, 64], f32>
  %2 = tgraph.sum %1 {axes = [1], accumulate = f32} : (!tgraph.tensor<[128, 64], f32>) -> !tgraph.tensor<[128], f32>
  tgraph.return %2 : (!tgraph.tensor<[128], f32>) -> ()
}
tgraph.func @twice(%a0: !tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[64, 128], f32> {
  %0 = tgraph.add %a0, %a0 : (!tgraph.tensor<[64, 128], f32>, !tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[64, 128], f32>
  tgraph.return %0 : (!tgraph.tensor<[64, 128], f32>) -> ()
}

// -----

// A batch that is innermost is moved outermost, and the contraction sees its operand as before.
// CHECK-LABEL: tsched.module @batch(
// CHECK-NEXT:    tsched.layout %x {order = [2, 0, 1]
// CHECK-NEXT:    %[[COPY:[a-z0-9]+]] = tsched.fuse @{{map_[a-z0-9]+}}(%x) {kind = "map"{{.*}} : !tgraph.tensor<[4, 64, 32], f32>
// CHECK-NEXT:    tsched.fuse @[[DOT:[a-z0-9_]+]](%[[COPY]], %w)
// CHECK:       tgraph.func @[[DOT]](
// CHECK-NEXT:    %[[SEEN:[a-z0-9]+]] = tgraph.transpose %a0 {axes = [1, 2, 0]}
// CHECK-NEXT:    tgraph.dot_general %[[SEEN]], %a1
tsched.module @batch(%x: !tgraph.tensor<[64, 32, 4], f32>, %w: !tgraph.tensor<[4, 32, 16], f32>) -> !tgraph.tensor<[4, 64, 16], f32> {
  %0 = tsched.fuse @products(%x, %w) {kind = "contraction"} : !tgraph.tensor<[4, 64, 16], f32>
  tsched.return %0
}
tgraph.func @products(%a0: !tgraph.tensor<[64, 32, 4], f32>, %a1: !tgraph.tensor<[4, 32, 16], f32>) -> !tgraph.tensor<[4, 64, 16], f32> {
  %0 = tgraph.dot_general %a0, %a1 {lhs_batch = [2], rhs_batch = [0], lhs_contract = [1], rhs_contract = [1], accumulate = f32, dtype = f32} : (!tgraph.tensor<[64, 32, 4], f32>, !tgraph.tensor<[4, 32, 16], f32>) -> !tgraph.tensor<[4, 64, 16], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 64, 16], f32>) -> ()
}

// -----

// Where a copy costs more than it saves, the order stays, and is written down; operands of a matmul are packed in any
// order, and nothing is asked.
// CHECK-LABEL: tsched.module @stays(
// CHECK-NEXT:    tsched.layout %x {order = [0, 1], candidates = {{\[}}[0, 1], [1, 0]], source = "static model"}
// CHECK-NEXT:    tsched.fuse @sum(%x, %y)
// CHECK-NEXT:    tsched.fuse @matmul(%y, %x)
// CHECK-NEXT:    tsched.return
tsched.module @stays(%x: !tgraph.tensor<[64, 128], f32>, %y: !tgraph.tensor<[128, 64], f32>) -> (!tgraph.tensor<[128, 64], f32>, !tgraph.tensor<[128, 128], f32>) {
  %0 = tsched.fuse @sum(%x, %y) {kind = "map"} : !tgraph.tensor<[128, 64], f32>
  %1 = tsched.fuse @matmul(%y, %x) {kind = "contraction"} : !tgraph.tensor<[128, 128], f32>
  tsched.return %0, %1
}
tgraph.func @sum(%a0: !tgraph.tensor<[64, 128], f32>, %a1: !tgraph.tensor<[128, 64], f32>) -> !tgraph.tensor<[128, 64], f32> {
  %0 = tgraph.transpose %a0 {axes = [1, 0]} : (!tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[128, 64], f32>
  %1 = tgraph.add %0, %a1 : (!tgraph.tensor<[128, 64], f32>, !tgraph.tensor<[128, 64], f32>) -> !tgraph.tensor<[128, 64], f32>
  tgraph.return %1 : (!tgraph.tensor<[128, 64], f32>) -> ()
}
tgraph.func @matmul(%a0: !tgraph.tensor<[128, 64], f32>, %a1: !tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[128, 128], f32> {
  %0 = tgraph.matmul %a0, %a1 {accumulate = f32} : (!tgraph.tensor<[128, 64], f32>, !tgraph.tensor<[64, 128], f32>) -> !tgraph.tensor<[128, 128], f32>
  tgraph.return %0 : (!tgraph.tensor<[128, 128], f32>) -> ()
}
