// RUN: tessera-opt %s --split -p graph-decompose | filecheck %s

// Draws are bits of Philox at consecutive counters, under the two words of a key.

// Random unsigned integers; element i depends on the key and on i alone.
// CHECK-LABEL: tgraph.func @random_bits(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.iota {shape = [15], axis = 0, dtype = u64} : {{.*}} -> !tgraph.tensor<[15], u64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [3, 5]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0], stop = [1], step = [1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [1], stop = [2], step = [1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.reshape %[[V4]] {shape = []}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.philox %[[V1]], %[[V3]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.cast %[[V6]] {dtype = u32} : {{.*}} -> !tgraph.tensor<[3, 5], u32>
// CHECK-NEXT:  tgraph.return %[[V7]]
tgraph.func @random_bits(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32> attributes {names = ["x0"]} {
  %0 = tgraph.random_bits %x0 {shape = [3, 5]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[3, 5], u32>
  tgraph.return %0 : (!tgraph.tensor<[3, 5], u32>) -> ()
}
// -----
// Numbers from `low` up to but (before scaling) without `high`, with as many bits as the dtype holds exactly.
// CHECK-LABEL: tgraph.func @uniform(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.iota {shape = [91], axis = 0, dtype = u64} : {{.*}} -> !tgraph.tensor<[91], u64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [7, 13]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0], stop = [1], step = [1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [1], stop = [2], step = [1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.reshape %[[V4]] {shape = []}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.philox %[[V1]], %[[V3]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.cast %[[V6]] {dtype = u32} : {{.*}} -> !tgraph.tensor<[7, 13], u32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.full {value = 8.0, shape = [], dtype = u32} : {{.*}} -> !tgraph.tensor<[], u32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.shift_right %[[V7]], %[[V8]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.cast %[[V9]] {dtype = i32} : {{.*}} -> !tgraph.tensor<[7, 13], i32>
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.cast %[[V10]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[7, 13], f32>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.full {value = 5.960464477539063e-08, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.mul %[[V11]], %[[V12]]
// CHECK-NEXT:  tgraph.return %[[V13]]
tgraph.func @uniform(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.uniform %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// Normal numbers by Box and Muller.
// CHECK-LABEL: tgraph.func @normal(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.iota {shape = [91], axis = 0, dtype = u64} : {{.*}} -> !tgraph.tensor<[91], u64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [7, 13]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0], stop = [1], step = [1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [1], stop = [2], step = [1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.reshape %[[V4]] {shape = []}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.philox %[[V1]], %[[V3]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.cast %[[V6]] {dtype = u32} : {{.*}} -> !tgraph.tensor<[7, 13], u32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.cast %[[V7]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[7, 13], f32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.full {value = 32.0, shape = [], dtype = u64} : {{.*}} -> !tgraph.tensor<[], u64>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.shift_right %[[V6]], %[[V9]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.cast %[[V10]] {dtype = u32} : {{.*}} -> !tgraph.tensor<[7, 13], u32>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.cast %[[V11]] {dtype = f32} : {{.*}} -> !tgraph.tensor<[7, 13], f32>
// CHECK-NEXT:  %[[V13:[a-z0-9]+]] = tgraph.full {value = 0.5, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V14:[a-z0-9]+]] = tgraph.add %[[V8]], %[[V13]]
// CHECK-NEXT:  %[[V15:[a-z0-9]+]] = tgraph.full {value = 2.3283064365386963e-10, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V16:[a-z0-9]+]] = tgraph.mul %[[V14]], %[[V15]]
// CHECK-NEXT:  %[[V17:[a-z0-9]+]] = tgraph.log %[[V16]]
// CHECK-NEXT:  %[[V18:[a-z0-9]+]] = tgraph.full {value = -2.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V19:[a-z0-9]+]] = tgraph.mul %[[V17]], %[[V18]]
// CHECK-NEXT:  %[[V20:[a-z0-9]+]] = tgraph.sqrt %[[V19]]
// CHECK-NEXT:  %[[V21:[a-z0-9]+]] = tgraph.full {value = 1.4629180792671596e-09, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V22:[a-z0-9]+]] = tgraph.mul %[[V12]], %[[V21]]
// CHECK-NEXT:  %[[V23:[a-z0-9]+]] = tgraph.cos %[[V22]]
// CHECK-NEXT:  %[[V24:[a-z0-9]+]] = tgraph.mul %[[V20]], %[[V23]]
// CHECK-NEXT:  %[[V25:[a-z0-9]+]] = tgraph.full {value = 1.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V26:[a-z0-9]+]] = tgraph.mul %[[V24]], %[[V25]]
// CHECK-NEXT:  %[[V27:[a-z0-9]+]] = tgraph.full {value = 0.0, shape = [], dtype = f32} : {{.*}} -> !tgraph.tensor<[], f32>
// CHECK-NEXT:  %[[V28:[a-z0-9]+]] = tgraph.add %[[V26]], %[[V27]]
// CHECK-NEXT:  tgraph.return %[[V28]]
tgraph.func @normal(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32> attributes {names = ["x0"]} {
  %0 = tgraph.normal %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], f32>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], f32>) -> ()
}
// -----
// True with probability `p`, in steps of 2**-24.
// CHECK-LABEL: tgraph.func @bernoulli(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.iota {shape = [91], axis = 0, dtype = u64} : {{.*}} -> !tgraph.tensor<[91], u64>
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = [7, 13]}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [0], stop = [1], step = [1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.slice %x0 {start = [1], stop = [2], step = [1]}
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.reshape %[[V4]] {shape = []}
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.philox %[[V1]], %[[V3]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.cast %[[V6]] {dtype = u32} : {{.*}} -> !tgraph.tensor<[7, 13], u32>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.full {value = 8.0, shape = [], dtype = u32} : {{.*}} -> !tgraph.tensor<[], u32>
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.shift_right %[[V7]], %[[V8]]
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.cast %[[V9]] {dtype = i32} : {{.*}} -> !tgraph.tensor<[7, 13], i32>
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.full {value = 8388608.0, shape = [], dtype = i32} : {{.*}} -> !tgraph.tensor<[], i32>
// CHECK-NEXT:  %[[V12:[a-z0-9]+]] = tgraph.lt %[[V10]], %[[V11]]
// CHECK-NEXT:  tgraph.return %[[V12]]
tgraph.func @bernoulli(%x0: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool> attributes {names = ["x0"]} {
  %0 = tgraph.bernoulli %x0 {shape = [7, 13]} : (!tgraph.tensor<[2], u64>) -> !tgraph.tensor<[7, 13], bool>
  tgraph.return %0 : (!tgraph.tensor<[7, 13], bool>) -> ()
}
// -----
// The key of a branch (a layer, a step) from a key and a number; its draws are unrelated to the key's.
// CHECK-LABEL: tgraph.func @fold_key(
// CHECK-NEXT:  %[[V0:[a-z0-9]+]] = tgraph.slice %x0 {start = [0], stop = [1], step = [1]}
// CHECK-NEXT:  %[[V1:[a-z0-9]+]] = tgraph.reshape %[[V0]] {shape = []}
// CHECK-NEXT:  %[[V2:[a-z0-9]+]] = tgraph.slice %x0 {start = [1], stop = [2], step = [1]}
// CHECK-NEXT:  %[[V3:[a-z0-9]+]] = tgraph.reshape %[[V2]] {shape = []}
// CHECK-NEXT:  %[[V4:[a-z0-9]+]] = tgraph.cast %x1 {dtype = u64} : {{.*}} -> !tgraph.tensor<[], u64>
// CHECK-NEXT:  %[[V5:[a-z0-9]+]] = tgraph.full {value = 2.0, shape = [], dtype = u64} : {{.*}} -> !tgraph.tensor<[], u64>
// CHECK-NEXT:  %[[V6:[a-z0-9]+]] = tgraph.mul %[[V4]], %[[V5]]
// CHECK-NEXT:  %[[V7:[a-z0-9]+]] = tgraph.iota {shape = [2], axis = 0, dtype = u64} : {{.*}} -> !tgraph.tensor<[2], u64>
// CHECK-NEXT:  %[[V8:[a-z0-9]+]] = tgraph.add %[[V7]], %[[V6]]
// CHECK-NEXT:  %[[V9:[a-z0-9]+]] = tgraph.full {value = 7.738724575613026e+18, shape = [], dtype = u64} : {{.*}} -> !tgraph.tensor<[], u64>
// CHECK-NEXT:  %[[V10:[a-z0-9]+]] = tgraph.bitwise_xor %[[V3]], %[[V9]]
// CHECK-NEXT:  %[[V11:[a-z0-9]+]] = tgraph.philox %[[V8]], %[[V1]], %[[V10]]
// CHECK-NEXT:  tgraph.return %[[V11]]
tgraph.func @fold_key(%x0: !tgraph.tensor<[2], u64>, %x1: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[2], u64> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.fold_key %x0, %x1 : (!tgraph.tensor<[2], u64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[2], u64>
  tgraph.return %0 : (!tgraph.tensor<[2], u64>) -> ()
}
