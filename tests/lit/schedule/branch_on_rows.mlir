// RUN: tessera-opt %s -p 'schedule-branch-on-rows{limits = [64, 256]}' | filecheck %s

// The usual group for more than 256 rows, and groups with bodies of their own for fewer; the rows are those of the
// program, of two axes here.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.if {size = B*S - 256} ({
// CHECK-NEXT:      %[[B:[a-z0-9_]+]] = tsched.fuse @product(%x, %w) {kind = "contraction", sizes = {{\[}}["s0", dim<B>], ["s1", dim<S>]]} :
// CHECK-NEXT:      tsched.yield %[[B]]
// CHECK-NEXT:    }, {
// CHECK-NEXT:      %[[C:[a-z0-9]+]] = tsched.if {size = B*S - 64} ({
// CHECK-NEXT:        %[[D:[a-z0-9_]+]] = tsched.fuse @product_rows256(%x, %w) {kind = "contraction"{{.*}}rows = 128}
// CHECK-NEXT:        tsched.yield %[[D]]
// CHECK-NEXT:      }, {
// CHECK-NEXT:        %[[E:[a-z0-9_]+]] = tsched.fuse @product_rows64(%x, %w) {kind = "contraction"{{.*}}rows = 64}
// CHECK-NEXT:        tsched.yield %[[E]]
// CHECK:           tsched.yield %[[C]]
// CHECK:         tsched.fuse @fixed(
// CHECK-NOT:     tsched.if
// CHECK:         tsched.return
// CHECK:       tgraph.func @product_rows64(
// CHECK:       tgraph.func @product_rows256(
// CHECK:       tgraph.func @product(
tsched.module @main(%x: !tgraph.tensor<[B, S, 32], f32>, %w: !tgraph.tensor<[32, 8], f32>, %y: !tgraph.tensor<[7, 32], f32>) -> (!tgraph.tensor<[B, S, 8], f32>, !tgraph.tensor<[7, 8], f32>) {
  %a = tsched.fuse @product(%x, %w) {kind = "contraction", sizes = [["s0", dim<B>], ["s1", dim<S>]]} : !tgraph.tensor<[B, S, 8], f32>
  %b = tsched.fuse @fixed(%y, %w) {kind = "contraction"} : !tgraph.tensor<[7, 8], f32>
  tsched.return %a, %b
}
tgraph.func @product(%a0: !tgraph.tensor<[s0, s1, 32], f32>, %a1: !tgraph.tensor<[32, 8], f32>) -> !tgraph.tensor<[s0, s1, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 {accumulate = f32} : (!tgraph.tensor<[s0, s1, 32], f32>, !tgraph.tensor<[32, 8], f32>) -> !tgraph.tensor<[s0, s1, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[s0, s1, 8], f32>) -> ()
}
tgraph.func @fixed(%a0: !tgraph.tensor<[7, 32], f32>, %a1: !tgraph.tensor<[32, 8], f32>) -> !tgraph.tensor<[7, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 {accumulate = f32} : (!tgraph.tensor<[7, 32], f32>, !tgraph.tensor<[32, 8], f32>) -> !tgraph.tensor<[7, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 8], f32>) -> ()
}
