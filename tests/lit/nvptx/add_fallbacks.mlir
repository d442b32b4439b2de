// RUN: tessera-opt %s -p nvptx-add-fallbacks | filecheck %s

// A kernel with a dot is kept as it is beside the one that tensor cores may take; what was said of its dot goes.
// CHECK-LABEL: ttile.kernel @dot(
// CHECK:         ttile.dot {{.*}} {unit = "wgmma", instruction = [64, 64, 16]}
// CHECK-LABEL: ttile.kernel @dot__plain(
// CHECK-SAME:    variant_of = "dot"
// CHECK:         ttile.dot {{.*}} {unit = "multiply-adds"}
ttile.kernel @dot() attributes {symbols = [], grid = [], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[64, 64], bf16>
  %c = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 64], f32>
  %d = ttile.dot %a, %a, %c {unit = "wgmma", instruction = [64, 64, 16]} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.return
}

// Kernels on multiply-adds, and those without dots, are left alone.
// CHECK-LABEL: ttile.kernel @asked(
// CHECK-LABEL: ttile.kernel @map(
// CHECK-NOT:   ttile.kernel
ttile.kernel @asked() attributes {symbols = [], grid = [], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[64, 64], bf16>
  %c = ttile.constant {value = 0.0} : () -> !ttile.tile<[64, 64], f32>
  %d = ttile.dot %a, %a, %c {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.return
}
ttile.kernel @map() attributes {symbols = [], grid = [], writes = []} {
  %c = ttile.constant {value = 0.0} : () -> !ttile.tile<[64], f32>
  ttile.return
}
