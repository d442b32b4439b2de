// RUN: not tessera-opt %s --split -p cpu-compare-accesses 2>&1 | filecheck %s

// Each of these verifies, stays in bounds, and is not the kernel that was meant.
// Loads are one element further.
// CHECK: error[T0601]: a load at `%p0*N + %e0 + 64*%p1 + 1` is no access of the tile kernel
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
      %5 = ttarget.load %0, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n + 1, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N], pad = 0.0} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
// -----
// The last column is left out.
// CHECK: is not cut where the tile kernel cuts it
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
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N - 1]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
// -----
// Half of the rows have no program.
// CHECK: error[T0601]: the grid is ((M // 2), ((N + 63) // 64)), and the tile kernel has (M, ((N + 63) // 64))
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
    ttarget.programs {grid = [(M floordiv 2), ((N + 63) floordiv 64)]} ({
    ^bb0(%2: !ttile.index, %3: !ttile.index):
      %4 = ttarget.index %3 {names = ["_q"], expr = 64*_q} : (!ttile.index) -> !ttile.index
      %5 = ttarget.load %0, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N], pad = 0.0} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
// -----
// It adds to what is there.
// CHECK: is no access of the tile kernel
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
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N], mode = "add"} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
// -----
// What is stored was never loaded.
// CHECK: error[T0601]: the tile kernel touches `%p0*N + %e0 + 64*%p1`, and nothing here does
builtin.module {
  ttile.kernel @stored(%x: !ttile.buffer<[M, N], f32>, %y: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], grid = [M, ((N + 63) floordiv 64)], writes = [1]} {
    %p = ttile.program_id {axis = 0} : () -> !ttile.index
    %q = ttile.program_id {axis = 1} : () -> !ttile.index
    %n = ttile.index %q {names = ["_q"], expr = 64*_q} : (!ttile.index) -> !ttile.index
    %a = ttile.load %x, %p, %n {coords = ["m", "n"], axes = ["n"], map = [m, n], bounds = [N], pad = 0.0} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64], f32>
    ttile.store %a, %y, %p, %n {coords = ["m", "n"], axes = ["n"], map = [m, n], bounds = [N]} : (!ttile.tile<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
    ttile.return
  }
}
builtin.module {
  ttarget.kernel @stored(%0: !ttile.buffer<[M, N], f32>, %1: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], writes = [1], lanes = 4, features = ["sse2"], scratch = 0} {
    ttarget.programs {grid = [M, ((N + 63) floordiv 64)]} ({
    ^bb0(%2: !ttile.index, %3: !ttile.index):
      %4 = ttarget.index %3 {names = ["_q"], expr = 64*_q} : (!ttile.index) -> !ttile.index
      %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[64], f32>
      ttarget.store %5, %1, %2, %4 {coords = ["m", "n"], axes = ["n"], offset = N*m + n, pattern = "contiguous", align = 4, guarded = ["n"], bounds = [N]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
