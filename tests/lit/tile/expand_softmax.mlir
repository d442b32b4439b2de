// RUN: tessera-opt %s -p tile-expand-softmax | filecheck %s

// Rows less their maxima, powers, and their sums, to which something may be added.
// CHECK-LABEL: ttile.kernel @rows(
// CHECK-NOT:     ttile.softmax
// CHECK:         %[[TOP:[a-z0-9]+]] = ttile.reduce %[[X:[a-z0-9]+]] {kind = "max", axis = 1}
// CHECK:         %[[SHIFT:[a-z0-9]+]] = ttile.select %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %[[TOP]]
// CHECK-NEXT:    %[[WIDE:[a-z0-9]+]] = ttile.broadcast %[[SHIFT]] {axes = [0]}
// CHECK-NEXT:    %[[LESS:[a-z0-9]+]] = ttile.elementwise %[[X]], %[[WIDE]] {fn = "sub"}
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = ttile.elementwise %[[LESS]] {fn = "exp"}
// CHECK-NEXT:    %[[SUM:[a-z0-9]+]] = ttile.reduce %[[P]] {kind = "sum", axis = 1}
// CHECK:         ttile.constant {value = 0.5}
// CHECK:         ttile.elementwise %[[P]], %{{[a-z0-9]+}} {fn = "div"}
// CHECK:         ttile.return
ttile.kernel @rows(%x: !ttile.buffer<[4, 8], f32>, %y: !ttile.buffer<[4, 8], f32>) attributes {symbols = [], grid = [], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %z, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [-1, -1]} : (!ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[4, 8], f32>
  %p = ttile.softmax %t {eps = 0.5} : (!ttile.tile<[4, 8], f32>) -> !ttile.tile<[4, 8], f32>
  ttile.store %p, %y, %z, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [-1, -1]} : (!ttile.tile<[4, 8], f32>, !ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// One block of an attention: powers are rounded to the dtype of the values, and what was summed before is scaled.
// CHECK-LABEL: ttile.kernel @block(
// CHECK-NOT:     ttile.attend
// CHECK:         %[[NEW:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {fn = "max"}
// CHECK:         %[[W:[a-z0-9]+]] = ttile.cast %{{[a-z0-9]+}} {rounding = "nearest_even"} {{.*}} -> !ttile.tile<[4, 8], bf16>
// CHECK:         %[[OLD:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {fn = "mul"}
// CHECK-NEXT:    ttile.dot %[[W]], %{{[a-z0-9]+}}, %[[OLD]]
// CHECK:         ttile.return
ttile.kernel @block() attributes {symbols = [], grid = [], writes = []} {
  %s = ttile.constant {value = 3.0} : () -> !ttile.tile<[4, 8], f32>
  %v = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], bf16>
  %acc = ttile.constant {value = 0.0} : () -> !ttile.tile<[4, 16], f32>
  %top = ttile.constant {value = 0.0} : () -> !ttile.tile<[4], f32>
  %sum = ttile.constant {value = 0.0} : () -> !ttile.tile<[4], f32>
  %a, %b, %c = ttile.attend %s, %v, %acc, %top, %sum : (!ttile.tile<[4, 8], f32>, !ttile.tile<[8, 16], bf16>, !ttile.tile<[4, 16], f32>, !ttile.tile<[4], f32>, !ttile.tile<[4], f32>) -> (!ttile.tile<[4, 16], f32>, !ttile.tile<[4], f32>, !ttile.tile<[4], f32>)
  ttile.return
}

// What is written out already stays.
// CHECK-LABEL: ttile.kernel @plain(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = ttile.constant
// CHECK-NEXT:    ttile.reduce %[[A]] {kind = "max", axis = 1}
// CHECK-NEXT:    ttile.return
ttile.kernel @plain() attributes {symbols = [], grid = [], writes = []} {
  %s = ttile.constant {value = 3.0} : () -> !ttile.tile<[4, 8], f32>
  %t = ttile.reduce %s {kind = "max", axis = 1} : (!ttile.tile<[4, 8], f32>) -> !ttile.tile<[4], f32>
  ttile.return
}
