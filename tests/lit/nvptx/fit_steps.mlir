// RUN: tessera-opt %s --split -p nvptx-fit-steps | filecheck %s

// 8-bit floats are added up outside of tensor cores after each 128 dots, whatever the step was; the end of k is
// then within a step, and said.
// CHECK-LABEL: ttile.kernel @eights(
// CHECK:         ttile.for %low, %high, %zero {step = 128}
// CHECK:           %[[A:.*]] = ttile.load %x, %i, %k {{.*}} bounds = [256, 320]} : {{.*}} -> !ttile.tile<[64, 128], f8e4m3>
// CHECK-NEXT:      %[[B:.*]] = ttile.load %w, %j, %k {{.*}} bounds = [512, 320]} : {{.*}} -> !ttile.tile<[32, 128], f8e4m3>
// CHECK-NEXT:      %[[T:.*]] = ttile.transpose %[[B]] : {{.*}} -> !ttile.tile<[128, 32], f8e4m3>
// CHECK-NEXT:      %[[C:.*]] = ttile.cast %[[A]] : {{.*}} -> !ttile.tile<[64, 128], f32>
// CHECK-NEXT:      %[[D:.*]] = ttile.cast %[[T]] : {{.*}} -> !ttile.tile<[128, 32], f32>
// CHECK-NEXT:      ttile.dot %[[C]], %[[D]], %acc
ttile.kernel @eights(%x: !ttile.buffer<[256, 320], f8e4m3>, %w: !ttile.buffer<[512, 320], f8e4m3>, %y: !ttile.buffer<[256, 512], f32>) attributes {symbols = [], grid = [4, 16], writes = [2], kind = "library"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 320} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, -1]} : (!ttile.buffer<[256, 320], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f8e4m3>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["n", "k"], map = [n, k], bounds = [512, 320]} : (!ttile.buffer<[512, 320], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 64], f8e4m3>
    %t = ttile.transpose %b : (!ttile.tile<[32, 64], f8e4m3>) -> !ttile.tile<[64, 32], f8e4m3>
    %c = ttile.cast %a : (!ttile.tile<[64, 64], f8e4m3>) -> !ttile.tile<[64, 64], f32>
    %d = ttile.cast %t : (!ttile.tile<[64, 32], f8e4m3>) -> !ttile.tile<[64, 32], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 32], f32>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    ttile.yield %e : (!ttile.tile<[64, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[64, 32], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// Others go 32 bytes at a time: 24 of bf16 are made 32.
// CHECK-LABEL: ttile.kernel @twenty_four(
// CHECK:         ttile.for %low, %high, %zero {step = 32}
// CHECK:           ttile.load %x, {{.*}} -> !ttile.tile<[64, 32], bf16>
// CHECK:           ttile.load %w, {{.*}} -> !ttile.tile<[32, 32], bf16>
ttile.kernel @twenty_four(%x: !ttile.buffer<[64, 320], bf16>, %w: !ttile.buffer<[320, 32], bf16>, %y: !ttile.buffer<[64, 32], f32>) attributes {symbols = [], grid = [1], writes = [2], kind = "library"} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 320} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 24} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [-1, 320]} : (!ttile.buffer<[64, 320], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 24], bf16>
    %b = ttile.load %w, %k, %i {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [320, -1]} : (!ttile.buffer<[320, 32], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[24, 32], bf16>
    %e = ttile.dot %a, %b, %acc : (!ttile.tile<[64, 24], bf16>, !ttile.tile<[24, 32], bf16>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    ttile.yield %e : (!ttile.tile<[64, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
  ttile.store %sum, %y, %i, %i {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]} : (!ttile.tile<[64, 32], f32>, !ttile.buffer<[64, 32], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// What a step gives is scaled before it is added: the step is part of what is computed, and stays.
// CHECK-LABEL: ttile.kernel @scaled(
// CHECK:         ttile.for %low, %high, %zero {step = 64}
ttile.kernel @scaled(%x: !ttile.buffer<[64, 320], f8e4m3>, %w: !ttile.buffer<[320, 32], f8e4m3>, %y: !ttile.buffer<[64, 32], f32>) attributes {symbols = [], grid = [1], writes = [2], kind = "library"} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 32], f32>
  %two = ttile.constant {value = 2} : () -> !ttile.tile<[64, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 320} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [-1, 320]} : (!ttile.buffer<[64, 320], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f8e4m3>
    %b = ttile.load %w, %k, %i {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [320, -1]} : (!ttile.buffer<[320, 32], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 32], f8e4m3>
    %part = ttile.dot %a, %b, %zero : (!ttile.tile<[64, 64], f8e4m3>, !ttile.tile<[64, 32], f8e4m3>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    %more = ttile.elementwise %part, %two {fn = "mul"} : (!ttile.tile<[64, 32], f32>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    %e = ttile.elementwise %acc, %more {fn = "add"} : (!ttile.tile<[64, 32], f32>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    ttile.yield %e : (!ttile.tile<[64, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
  ttile.store %sum, %y, %i, %i {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]} : (!ttile.tile<[64, 32], f32>, !ttile.buffer<[64, 32], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// The loop covers part of K, and a wider step would read beyond it.
// CHECK-LABEL: ttile.kernel @part(
// CHECK:         ttile.for %low, %high, %zero {step = 64}
ttile.kernel @part(%x: !ttile.buffer<[64, 320], f8e4m3>, %w: !ttile.buffer<[320, 32], f8e4m3>, %y: !ttile.buffer<[64, 32], f32>) attributes {symbols = [], grid = [1], writes = [2], kind = "library"} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [-1, 320]} : (!ttile.buffer<[64, 320], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], f8e4m3>
    %b = ttile.load %w, %k, %i {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [320, -1]} : (!ttile.buffer<[320, 32], f8e4m3>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 32], f8e4m3>
    %e = ttile.dot %a, %b, %acc : (!ttile.tile<[64, 64], f8e4m3>, !ttile.tile<[64, 32], f8e4m3>, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
    ttile.yield %e : (!ttile.tile<[64, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 32], f32>) -> !ttile.tile<[64, 32], f32>
  ttile.store %sum, %y, %i, %i {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]} : (!ttile.tile<[64, 32], f32>, !ttile.buffer<[64, 32], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
