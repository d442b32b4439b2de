// RUN: tessera-opt %s --split -p schedule-form-groups,schedule-emit-tiles | filecheck %s

// A reduction begins with the neutral element, and combines with it by its own function.

// Product over axes; integers in 64 bits; 1 for no elements.
// CHECK-LABEL: tsched.module @prod(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = 1} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK:       %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.clip %[[V1]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = 1}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %[[V2]] {fn = "mul"}
// CHECK:       %[[V4:[a-z0-9]+]] = ttile.reduce %{{[a-z0-9]+}} {kind = "prod", axis = 0} : {{.*}} -> !ttile.tile<[], f32>
// CHECK:       ttile.store %[[V4]], %[[LEAVES:[a-z0-9]+]],
// CHECK:       ttile.tree %[[LEAVES]], %{{[a-z0-9]+}} {kind = "prod"}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.load %[[LEAVES]],
// CHECK-NEXT:  ttile.store %[[V5]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @prod(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.prod %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Smallest over axes, which have elements; NaN propagates.
// CHECK-LABEL: tsched.module @min(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = inf} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK:       %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.clip %[[V1]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = inf}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %[[V2]] {fn = "min"}
// CHECK:       %[[V4:[a-z0-9]+]] = ttile.reduce %{{[a-z0-9]+}} {kind = "min", axis = 0} : {{.*}} -> !ttile.tile<[], f32>
// CHECK-NEXT:  ttile.store %[[V4]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @min(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.min %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// Whether one is true; false for no elements.
// CHECK-LABEL: tsched.module @any(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = false} : {{.*}} -> !ttile.tile<{{.*}}, bool>
// CHECK:       %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.clip %[[V1]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = false}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %[[V2]] {fn = "or"}
// CHECK:       %[[V4:[a-z0-9]+]] = ttile.reduce %{{[a-z0-9]+}} {kind = "any", axis = 0} : {{.*}} -> !ttile.tile<[], bool>
// CHECK-NEXT:  ttile.store %[[V4]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @any(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.any %x0 {axes = [0]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// Whether all are true; true for no elements.
// CHECK-LABEL: tsched.module @all(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = true} : {{.*}} -> !ttile.tile<{{.*}}, bool>
// CHECK:       %[[V1:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.clip %[[V1]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = true}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %[[V2]] {fn = "and"}
// CHECK:       %[[V4:[a-z0-9]+]] = ttile.reduce %{{[a-z0-9]+}} {kind = "all", axis = 0} : {{.*}} -> !ttile.tile<[], bool>
// CHECK-NEXT:  ttile.store %[[V4]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @all(%x0: !tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.all %x0 {axes = [0]} : (!tgraph.tensor<[N7], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// Position of the largest over axes, in their row-major order: the first of equals; the first NaN is chosen.
// CHECK-LABEL: tsched.module @argmax(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = -inf} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.constant {value = 9223372036854775807} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK:       %[[V2:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.clip %[[V2]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = -inf}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], expr = _r} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.elementwise %[[V3]], %[[BEST:[a-z0-9]+]] {fn = "le"}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = ttile.elementwise %[[BEST]], %[[BEST]] {fn = "eq"}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = ttile.elementwise %[[V5]] {fn = "not"}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = ttile.elementwise %[[V7]], %[[V6]] {fn = "and"}
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = ttile.select %[[V8]], %[[V3]], %[[BEST]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = ttile.select %[[V8]], %[[V4]], %{{[a-z0-9]+}}
// CHECK:       %[[V16:[a-z0-9]+]] = ttile.arg_reduce %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {kind = "argmax", axis = 0} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = ttile.constant {value = 9223372036854775807} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = ttile.elementwise %[[V16]], %[[V17]] {fn = "eq"}
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = ttile.select %[[V18]], %[[V19]], %[[V16]]
// CHECK-NEXT:  ttile.store %[[V20]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @argmax(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmax %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// Position of the smallest over axes, in their row-major order: the first of equals; the first NaN is chosen.
// CHECK-LABEL: tsched.module @argmin(
// CHECK:       ttile.kernel @{{.*}}writes = [1]
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.constant {value = inf} : {{.*}} -> !ttile.tile<{{.*}}, f32>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.constant {value = 9223372036854775807} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK:       %[[V2:[a-z0-9]+]] = ttile.load %0, %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [N7]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = ttile.clip %[[V2]], %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], axis = "_r", bound = N7, identity = inf}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = ttile.coordinate %{{[a-z0-9]+}} {coords = ["_r"], axes = ["_r"], expr = _r} : {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = ttile.elementwise %[[V3]], %[[BEST:[a-z0-9]+]] {fn = "ge"}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = ttile.elementwise %[[BEST]], %[[BEST]] {fn = "eq"}
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = ttile.elementwise %[[V5]] {fn = "not"}
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = ttile.elementwise %[[V7]], %[[V6]] {fn = "and"}
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = ttile.select %[[V8]], %[[V3]], %[[BEST]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = ttile.select %[[V8]], %[[V4]], %{{[a-z0-9]+}}
// CHECK:       %[[V16:[a-z0-9]+]] = ttile.arg_reduce %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {kind = "argmin", axis = 0} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = ttile.constant {value = 9223372036854775807} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = ttile.elementwise %[[V16]], %[[V17]] {fn = "eq"}
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = ttile.constant {value = 0} : {{.*}} -> !ttile.tile<[], i64>
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = ttile.select %[[V18]], %[[V19]], %[[V16]]
// CHECK-NEXT:  ttile.store %[[V20]], %1 {coords = [], axes = [], map = [], bounds = []}
tgraph.func @argmin(%x0: !tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["x0"], guards = [[dim<min(1, N7)>, dim<1>, "the op's rule"]]} {
  %0 = tgraph.argmin %x0 {axes = [0]} : (!tgraph.tensor<[N7], f32>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
// -----
// Where all indices are known to fit, they have 32 bits until the end; integers have no NaN.
// CHECK-LABEL: tsched.module @argmin_of_known_size(
// CHECK:       ttile.constant {value = 2147483647} : {{.*}} -> !ttile.tile<{{.*}}, i32>
// CHECK:       %[[V0:[a-z0-9]+]] = ttile.coordinate {{.*}} -> !ttile.tile<{{.*}}, i64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = ttile.cast %[[V0]] {{.*}} -> !ttile.tile<{{.*}}, i32>
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = ttile.elementwise %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {fn = "lt"}
// CHECK-NEXT:  ttile.select %[[V2]]
// CHECK-NEXT:  ttile.select %[[V2]], %[[V1]]
// CHECK:       ttile.arg_reduce %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {kind = "argmin", axis = 0} : {{.*}} -> !ttile.tile<[], i32>
// CHECK:       ttile.cast {{.*}} -> !ttile.tile<[], i64>
tgraph.func @argmin_of_known_size(%x0: !tgraph.tensor<[9, 700], i32>) -> !tgraph.tensor<[9], i64> attributes {names = ["x0"]} {
  %0 = tgraph.argmin %x0 {axes = [1]} : (!tgraph.tensor<[9, 700], i32>) -> !tgraph.tensor<[9], i64>
  tgraph.return %0 : (!tgraph.tensor<[9], i64>) -> ()
}
