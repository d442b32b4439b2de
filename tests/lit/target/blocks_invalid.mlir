// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What vectors of one shape and dtype become: each op says which of them do not fit.

// CHECK: error[T0601]: `ttarget.bitcast` keeps the bits, and f32 has 32 of them, i64 64
ttarget.kernel @bitcast() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[4], f32>
    %r = ttarget.bitcast %a : (!ttarget.vector<[4], f32>) -> !ttarget.vector<[4], i64>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.tree` takes a buffer of rank 2 and a count of its lines, got !ttile.buffer<[N], f32> and !ttile.index
ttarget.kernel @tree(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [0], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %n = ttarget.index {names = [], expr = N} : () -> !ttile.index
    ttarget.tree %x, %n {kind = "sum"} : (!ttile.buffer<[N], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.select` chooses by bool, got f32
ttarget.kernel @select() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[4], f32>
    %b = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[4], f32>
    %c = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[4], f32>
    %r = ttarget.select %a, %b, %c : (!ttarget.vector<[4], f32>, !ttarget.vector<[4], f32>, !ttarget.vector<[4], f32>) -> !ttarget.vector<[4], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.coordinate` has axes ['j'] for a block of rank 1; each must be in ['i']
ttarget.kernel @coordinate() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %r = ttarget.coordinate %i {coords = ["i"], axes = ["j"], expr = i} : (!ttile.index) -> !ttarget.vector<[4], i64>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.clip` clips one of ['i'], got j
ttarget.kernel @clip() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8], f32>
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %r = ttarget.clip %a, %i {coords = ["i"], axes = ["i"], axis = "j", bound = N, identity = 0} : (!ttarget.vector<[8], f32>, !ttile.index) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: [8] cannot be broadcast to [8, 4] along [1]
ttarget.kernel @broadcast() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8], f32>
    %r = ttarget.broadcast %a {axes = [1]} : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8, 4], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `axis` must be in 0..1, got 2
ttarget.kernel @reduce() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %r = ttarget.reduce %a {kind = "sum", axis = 2} : (!ttarget.vector<[8, 4], f32>) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.arg_reduce` takes values and their indices, of one shape, got !ttarget.vector<[8, 4], f32> and !ttarget.vector<[8, 2], i64>
ttarget.kernel @arg_reduce() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %b = ttarget.constant {value = 1} : () -> !ttarget.vector<[8, 2], i64>
    %r = ttarget.arg_reduce %a, %b {kind = "argmax", axis = 1} : (!ttarget.vector<[8, 4], f32>, !ttarget.vector<[8, 2], i64>) -> !ttarget.vector<[8], i64>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.round`: there is no rounding `upward`; there are `nearest_even`, `toward_zero`, `stochastic`
ttarget.kernel @round() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8], f32>
    %r = ttarget.round %a {format = "bf16", rounding = "upward"} : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `mode` is one of down, up, index, xor, got turn
ttarget.kernel @shuffle() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8], f32>
    %r = ttarget.shuffle %a {mode = "turn", by = 1, width = 8} : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: lanes vote with bools, got f32
ttarget.kernel @vote() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8], f32>
    %r = ttarget.vote %a {kind = "any", width = 8} : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], bool>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.transpose` makes [B, A] of [A, B], got !ttarget.vector<[8, 4], f32> of !ttarget.vector<[8, 4], f32>
ttarget.kernel @transpose() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %r = ttarget.transpose %a : (!ttarget.vector<[8, 4], f32>) -> !ttarget.vector<[8, 4], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.dot` multiplies [M, K] by [K, N], got [8, 4] by [8, 4]
ttarget.kernel @dot() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %a = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %b = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %c = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[8, 4], f32>
    %r = ttarget.dot %a, %b, %c : (!ttarget.vector<[8, 4], f32>, !ttarget.vector<[8, 4], f32>, !ttarget.vector<[8, 4], f32>) -> !ttarget.vector<[8, 4], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `ttarget.prefetch` takes an argument of the kernel, and scratch is in a cache
ttarget.kernel @prefetch_scratch() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 4096} {
  ttarget.programs {grid = []} ({
    %s = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[1024], f32>
    ttarget.prefetch %s {coords = [], offset = 0, elements = 1024, ahead = 4096} : (!ttile.buffer<[1024], f32>) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: `elements` is 1 at least, got 0
ttarget.kernel @prefetch_nothing(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    ttarget.prefetch %x {coords = [], offset = 0, elements = 0, ahead = 4096} : (!ttile.buffer<[N], f32>) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]: the offset `_f` uses ['_f'], and what is known is ['N']
ttarget.kernel @prefetch_anywhere(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    ttarget.prefetch %x {coords = [], offset = _f, elements = 8, ahead = 4096} : (!ttile.buffer<[N], f32>) -> ()
    ttarget.yield
  })
  ttarget.return
}
