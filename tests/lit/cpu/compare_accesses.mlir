// RUN: tessera-opt %s -p cpu-compare-accesses | filecheck %s

// A lowered kernel, and the one it was lowered from: the same elements, within the same bounds.
// CHECK: ttile.kernel @add(
// CHECK: ttarget.kernel @add(
builtin.module {
  ttile.kernel @add(%x: !ttile.buffer<[M, N], f32>, %y: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], grid = [M, ((N + 63) floordiv 64)], writes = [1]} {
    %p = ttile.program_id {axis = 0} : () -> !ttile.index
    %q = ttile.program_id {axis = 1} : () -> !ttile.index
    %n = ttile.index %q {names = ["_q"], expr = 64*_q} : (!ttile.index) -> !ttile.index
    %a = ttile.load %x, %p, %n {coords = ["m", "n"], axes = ["n"], map = [m, n], bounds = [N], pad = 0.0} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64], f32>
    ttile.store %a, %y, %p, %n {coords = ["m", "n"], axes = ["n"], map = [m, n], bounds = [N]} : (!ttile.tile<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
    ttile.return
  }
}
builtin.module {
  ttarget.kernel @add(%0: !ttile.buffer<[M, N], f32>, %1: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], writes = [1], lanes = 4, features = ["sse2"], scratch = 0} {
    ttarget.programs {grid = [M, ((N + 63) floordiv 64)]} ({
    ^bb0(%2: !ttile.index, %3: !ttile.index):
      %4 = ttarget.index %3 {names = ["_q"], expr = 64*_q} : (!ttile.index) -> !ttile.index
      %5 = ttarget.load %0, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N], pad = 0.0} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
