// RUN: tessera-opt %s --split -p tile-drop-bounds | filecheck %s

// Every tile begins at a multiple of 32 below 128*s0, and so ends within it.
// CHECK-LABEL: ttile.kernel @whole(
// CHECK:         %[[V:.*]] = ttile.load {{.*}} bounds = [-1]}
// CHECK-NEXT:    ttile.store %[[V]], {{.*}} bounds = [-1]}
ttile.kernel @whole(%x: !ttile.buffer<[128*s0], f32>, %y: !ttile.buffer<[128*s0], f32>) attributes {symbols = ["s0"], grid = [4*s0], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [128*s0]} : (!ttile.buffer<[128*s0], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  %c = ttile.clip %v, %i {coords = ["i"], axes = ["i"], axis = "i", bound = 128*s0, identity = 0} : (!ttile.tile<[32], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  ttile.store %c, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [128*s0]} : (!ttile.tile<[32], f32>, !ttile.buffer<[128*s0], f32>, !ttile.index) -> ()
  ttile.return
}

// -----

// Nothing is known of s0: the last tile may hang over, and all of it stays.
// CHECK-LABEL: ttile.kernel @ragged(
// CHECK:         ttile.load {{.*}} bounds = [s0]}
// CHECK-NEXT:    ttile.clip
// CHECK-NEXT:    ttile.store {{.*}} bounds = [s0]}
ttile.kernel @ragged(%x: !ttile.buffer<[s0], f32>, %y: !ttile.buffer<[s0], f32>) attributes {symbols = ["s0"], grid = [((s0 + 31) floordiv 32)], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [s0]} : (!ttile.buffer<[s0], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  %c = ttile.clip %v, %i {coords = ["i"], axes = ["i"], axis = "i", bound = s0, identity = 0} : (!ttile.tile<[32], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  ttile.store %c, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [s0]} : (!ttile.tile<[32], f32>, !ttile.buffer<[s0], f32>, !ttile.index) -> ()
  ttile.return
}

// -----

// A tile that begins one further on leaves by one element, though the loop has whole steps; the other does not.
// CHECK-LABEL: ttile.kernel @shifted(
// CHECK:         ttile.load {{.*}} bounds = [64]}
// CHECK-NEXT:    ttile.store {{.*}} bounds = [-1]}
ttile.kernel @shifted(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 64} : () -> !ttile.index
  ttile.for %low, %high {step = 16} ({
  ^bb0(%i: !ttile.index):
    %j = ttile.index %i {names = ["i"], expr = i + 1} : (!ttile.index) -> !ttile.index
    %v = ttile.load %x, %j {coords = ["i"], axes = ["i"], map = [i], bounds = [64]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[16], f32>
    ttile.store %v, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [64]} : (!ttile.tile<[16], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
