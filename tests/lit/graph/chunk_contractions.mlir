// RUN: tessera-opt %s -p graph-chunk-contractions{limit=1024} | filecheck %s
// RUN: tessera-opt %s -p graph-chunk-contractions | filecheck %s --check-prefix=WHOLE

// Rows of a product are reduced in a loop over chunks of them; the product of all rows is gone.
// CHECK-LABEL: tgraph.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9_]+]]: !tgraph.tensor<[64, 4], f32>, %[[W:[a-z0-9_]+]]: !tgraph.tensor<[4, 32], f32>
// CHECK-SAME:    tessera.chunked = ["matmul [64, 32] f32: 8192 bytes, in 8 chunks of 8
// CHECK-NEXT:    %[[R:[a-z0-9_]+]] = tgraph.reshape %[[X]] {shape = [8, 8, 4]}
// CHECK-NEXT:    %[[S:[a-z0-9_]+]] = tgraph.scan %[[R]], %[[W]] {carried = 0, scanned = 1, length = [8]}
// CHECK:           %[[P:[a-z0-9_]+]] = tgraph.matmul
// CHECK-SAME:        -> !tgraph.tensor<[8, 32], f32>
// CHECK-NEXT:      %[[E:[a-z0-9_]+]] = tgraph.exp %[[P]]
// CHECK-NEXT:      %[[M:[a-z0-9_]+]] = tgraph.sum %[[E]] {axes = [1], accumulate = f32}
// CHECK-NEXT:      tgraph.yield %[[M]]
// CHECK:         %[[Y:[a-z0-9_]+]] = tgraph.reshape %[[S]] {shape = [64]}
// CHECK-NEXT:    tgraph.return %[[Y]]
// WHOLE-LABEL: tgraph.func @rows(
// WHOLE-NOT:     tgraph.scan
// WHOLE:         tgraph.return
tgraph.func @rows(%x: !tgraph.tensor<[64, 4], f32>, %w: !tgraph.tensor<[4, 32], f32>) -> !tgraph.tensor<[64], f32> {
  %p = tgraph.matmul %x, %w {accumulate = f32} : (!tgraph.tensor<[64, 4], f32>, !tgraph.tensor<[4, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %e = tgraph.exp %p : (!tgraph.tensor<[64, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %m = tgraph.sum %e {axes = [1], accumulate = f32} : (!tgraph.tensor<[64, 32], f32>) -> !tgraph.tensor<[64], f32>
  tgraph.return %m : (!tgraph.tensor<[64], f32>) -> ()
}

// What contracts over the rows is computed by a loop over columns, which rematerializes the product; 61 rows are padded.
// CHECK-LABEL: tgraph.func @both(
// CHECK:         tgraph.pad
// CHECK:         tgraph.scan
// CHECK:           tgraph.matmul
// CHECK-SAME:        -> !tgraph.tensor<[8, 32], f32>
// CHECK:           tgraph.yield
// CHECK:         tgraph.slice %{{[a-z0-9_]+}} {start = [0], stop = [61], step = [1]}
// CHECK:         tgraph.scan
// CHECK:           %[[P:[a-z0-9_]+]] = tgraph.matmul
// CHECK-SAME:        -> !tgraph.tensor<[61, 4], f32>
// CHECK-NEXT:      tgraph.optimization_barrier %[[P]], %[[P]]
// CHECK:           tgraph.matmul
// CHECK-SAME:        !tgraph.tensor<[61, 4], f32>) -> !tgraph.tensor<[3, 4], f32>
// CHECK:           tgraph.yield
tgraph.func @both(%x: !tgraph.tensor<[61, 3], f32>, %w: !tgraph.tensor<[3, 32], f32>) -> (!tgraph.tensor<[61], f32>, !tgraph.tensor<[3, 32], f32>) {
  %p = tgraph.matmul %x, %w {accumulate = f32} : (!tgraph.tensor<[61, 3], f32>, !tgraph.tensor<[3, 32], f32>) -> !tgraph.tensor<[61, 32], f32>
  %m = tgraph.sum %p {axes = [1], accumulate = f32} : (!tgraph.tensor<[61, 32], f32>) -> !tgraph.tensor<[61], f32>
  %c = tgraph.reshape %m {shape = [61, 1]} : (!tgraph.tensor<[61], f32>) -> !tgraph.tensor<[61, 1], f32>
  %d = tgraph.sub %p, %c : (!tgraph.tensor<[61, 32], f32>, !tgraph.tensor<[61, 1], f32>) -> !tgraph.tensor<[61, 32], f32>
  %t = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[61, 3], f32>) -> !tgraph.tensor<[3, 61], f32>
  %g = tgraph.matmul %t, %d {accumulate = f32} : (!tgraph.tensor<[3, 61], f32>, !tgraph.tensor<[61, 32], f32>) -> !tgraph.tensor<[3, 32], f32>
  tgraph.return %m, %g : (!tgraph.tensor<[61], f32>, !tgraph.tensor<[3, 32], f32>) -> ()
}

// A product that is a result itself stays, and so does one whose rows give as many elements (an MLP).
// CHECK-LABEL: tgraph.func @kept(
// CHECK-NOT:     tgraph.scan
// CHECK:         tgraph.return
tgraph.func @kept(%x: !tgraph.tensor<[64, 4], f32>, %w: !tgraph.tensor<[4, 32], f32>, %v: !tgraph.tensor<[32, 8], f32>) -> (!tgraph.tensor<[64, 32], f32>, !tgraph.tensor<[64, 8], f32>) {
  %p = tgraph.matmul %x, %w {accumulate = f32} : (!tgraph.tensor<[64, 4], f32>, !tgraph.tensor<[4, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %e = tgraph.exp %p : (!tgraph.tensor<[64, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %q = tgraph.matmul %x, %w {accumulate = f32} : (!tgraph.tensor<[64, 4], f32>, !tgraph.tensor<[4, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %f = tgraph.tanh %q : (!tgraph.tensor<[64, 32], f32>) -> !tgraph.tensor<[64, 32], f32>
  %y = tgraph.matmul %f, %v {accumulate = f32} : (!tgraph.tensor<[64, 32], f32>, !tgraph.tensor<[32, 8], f32>) -> !tgraph.tensor<[64, 8], f32>
  tgraph.return %e, %y : (!tgraph.tensor<[64, 32], f32>, !tgraph.tensor<[64, 8], f32>) -> ()
}
