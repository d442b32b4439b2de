// RUN: tessera-opt %s -p tile-fuse-multiply-adds | filecheck %s

// A multiply with one use, in an add, is fused, as either operand; the kernel records how often.
// CHECK-LABEL: ttile.kernel @fused(
// CHECK-SAME:    numerics.fused = 2
// CHECK:         %[[A:[a-z0-9]+]] = ttile.constant {value = 1.5}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = ttile.constant {value = 2.5}
// CHECK-NEXT:    %[[F:[a-z0-9]+]] = ttile.elementwise %[[A]], %[[B]], %[[A]] {fn = "fma"}
// CHECK-NEXT:    ttile.elementwise %[[F]], %[[B]], %[[B]] {fn = "fma"}
// CHECK-NEXT:    ttile.return
ttile.kernel @fused() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[8], f32>
  %1 = ttile.constant {value = 2.5} : () -> !ttile.tile<[8], f32>
  %2 = ttile.elementwise %0, %1 {fn = "mul"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %3 = ttile.elementwise %2, %0 {fn = "add"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %4 = ttile.elementwise %3, %1 {fn = "mul"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %5 = ttile.elementwise %1, %4 {fn = "add"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  ttile.return
}

// A product with another use stays rounded, and so does a product of integers.
// CHECK-LABEL: ttile.kernel @apart(
// CHECK-NOT:     fma
// CHECK-NOT:     numerics.fused
ttile.kernel @apart() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.5} : () -> !ttile.tile<[8], f32>
  %1 = ttile.elementwise %0, %0 {fn = "mul"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %2 = ttile.elementwise %1, %1 {fn = "add"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  %3 = ttile.constant {value = 2} : () -> !ttile.tile<[8], i32>
  %4 = ttile.elementwise %3, %3 {fn = "mul"} : (!ttile.tile<[8], i32>, !ttile.tile<[8], i32>) -> !ttile.tile<[8], i32>
  %5 = ttile.elementwise %4, %3 {fn = "add"} : (!ttile.tile<[8], i32>, !ttile.tile<[8], i32>) -> !ttile.tile<[8], i32>
  ttile.return
}
