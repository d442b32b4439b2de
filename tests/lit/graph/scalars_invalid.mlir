// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A function takes the dtypes that it is defined for, and a comparison gives a bool.

// CHECK: error[T0301]: `abs` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @abs(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.abs %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `sign` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @sign(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.sign %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `floor` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @floor(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.floor %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `ceil` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @ceil(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.ceil %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `round` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @round(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.round %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `trunc` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @trunc(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.trunc %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `isnan` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @isnan(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isnan %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `isinf` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @isinf(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.isinf %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `exp2` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @exp2(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.exp2 %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `expm1` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @expm1(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.expm1 %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `log` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @log(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.log %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `log2` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @log2(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.log2 %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `log1p` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @log1p(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.log1p %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `sqrt` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @sqrt(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.sqrt %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `rsqrt` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @rsqrt(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.rsqrt %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `reciprocal` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @reciprocal(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.reciprocal %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `cos` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @cos(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.cos %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `tan` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @tan(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.tan %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `atan2` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @atan2(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.atan2 %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `sigmoid` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @sigmoid(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.sigmoid %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `erf` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @erf(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.erf %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `silu` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @silu(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.silu %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `softplus` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @softplus(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.softplus %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `floordiv` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @floordiv(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.floordiv %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `mod` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @mod(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.mod %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `pow` takes f32 f64 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u64 u32 u16 u8, got `x` of bool
tgraph.func @pow(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.pow %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.ne` is !tgraph.tensor<[], bool> by its shape rule, not !tgraph.tensor<[], f32>
tgraph.func @ne(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ne %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.le` is !tgraph.tensor<[], bool> by its shape rule, not !tgraph.tensor<[], f32>
tgraph.func @le(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.le %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.gt` is !tgraph.tensor<[], bool> by its shape rule, not !tgraph.tensor<[], f32>
tgraph.func @gt(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gt %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: result 0 of `tgraph.ge` is !tgraph.tensor<[], bool> by its shape rule, not !tgraph.tensor<[], f32>
tgraph.func @ge(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.ge %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `logical_not` takes bool, got `x` of f32
tgraph.func @logical_not(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.logical_not %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `bitwise_not` takes i64 i32 i16 i8 u64 u32 u16 u8 bool, got `x` of f32
tgraph.func @bitwise_not(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.bitwise_not %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `logical_and` takes bool, got `x` of f32
tgraph.func @logical_and(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_and %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `bitwise_and` takes i64 i32 i16 i8 u64 u32 u16 u8 bool, got `x` of f32
tgraph.func @bitwise_and(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_and %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `logical_or` takes bool, got `x` of f32
tgraph.func @logical_or(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_or %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `bitwise_or` takes i64 i32 i16 i8 u64 u32 u16 u8 bool, got `x` of f32
tgraph.func @bitwise_or(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_or %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `logical_xor` takes bool, got `x` of f32
tgraph.func @logical_xor(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.logical_xor %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `bitwise_xor` takes i64 i32 i16 i8 u64 u32 u16 u8 bool, got `x` of f32
tgraph.func @bitwise_xor(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.bitwise_xor %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `shift_left` takes i64 i32 i16 i8 u64 u32 u16 u8, got `x` of f32
tgraph.func @shift_left(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_left %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `shift_right` takes i64 i32 i16 i8 u64 u32 u16 u8, got `x` of f32
tgraph.func @shift_right(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.shift_right %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `gelu` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @gelu(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.gelu %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `bitcast` has no bits of bool to show
tgraph.func @bitcast(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], i32> attributes {names = ["x0"]} {
  %0 = tgraph.bitcast %x0 {dtype = i32, source = f32} : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], i32>
  tgraph.return %0 : (!tgraph.tensor<[], i32>) -> ()
}
// -----
// CHECK: error[T0301]: `asin` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @asin(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.asin %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `acos` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @acos(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.acos %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `atan` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @atan(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.atan %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `sinh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @sinh(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.sinh %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `cosh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @cosh(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.cosh %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `asinh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @asinh(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.asinh %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `acosh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @acosh(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.acosh %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `atanh` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @atanh(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.atanh %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `log10` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @log10(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.log10 %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `erfc` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @erfc(%x0: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0"]} {
  %0 = tgraph.erfc %x0 : (!tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `hypot` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @hypot(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.hypot %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `copysign` takes f32 f64 bf16 f16 f8e4m3 f8e5m2, got `x` of bool
tgraph.func @copysign(%x0: !tgraph.tensor<[], bool>, %x1: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.copysign %x0, %x1 : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], bool>) -> !tgraph.tensor<[], bool>
  tgraph.return %0 : (!tgraph.tensor<[], bool>) -> ()
}
// -----
// CHECK: error[T0301]: `population_count` takes i64 i32 i16 i8 u64 u32 u16 u8, got `x` of f32
tgraph.func @population_count(%x0: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0"]} {
  %0 = tgraph.population_count %x0 : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
// -----
// CHECK: error[T0301]: `gcd` takes i64 i32 i16 i8 u64 u32 u16 u8, got `x` of f32
tgraph.func @gcd(%x0: !tgraph.tensor<[], f32>, %x1: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x0", "x1"]} {
  %0 = tgraph.gcd %x0, %x1 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
