// RUN: tessera-opt %s --split -p 'schedule-attach-choices{tile = [128, 128, 64], algo = "ring", quantize = "fp8"}' | filecheck %s
// RUN: tessera-opt %s --split -p 'schedule-attach-choices{tile = [64, 128, 64], source = "cost_model", group = "attention"}' | filecheck %s --check-prefix=ONE

// What a search chose is written on the group, with its source, and on its collective; layouts stay as they are.
// CHECK-LABEL: tsched.module {
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @attention(%Q, %K, %V) {pattern = "flash_attention"}
// CHECK-NEXT:    tsched.layout %K {partition = ["head"], mesh_axes = ["tp"]}
// CHECK-NEXT:    tsched.tile %[[A]] candidates = [{{\[}}128, 128, 64], [64, 128, 64], [128, 64, 64]] chosen = [128, 128, 64] {source = "autotune"}
// CHECK-NEXT:    tsched.collective %[[A]] {pattern = "RS_MM_AG", axis = "tp", algo = "ring", quantize = "fp8"}
// CHECK-NEXT:    tsched.return %[[A]]
// Where a model chose, that is the source; what is not given stays open.
// ONE-LABEL: tsched.module {
// ONE:         tsched.tile %{{.*}} candidates = [{{.*}}] chosen = [64, 128, 64] {source = "cost_model"}
// ONE-NEXT:    tsched.collective %{{.*}} {pattern = "RS_MM_AG", axis = "tp"}
tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V) {pattern = "flash_attention"}
  tsched.layout %K {partition = ["head"], mesh_axes = ["tp"]}
  tsched.tile %attn candidates = [[128,128,64], [64,128,64], [128,64,64]]
  tsched.collective %attn {pattern = "RS_MM_AG", axis = "tp"}
  tsched.return %attn
}

// -----

// A group without a line of its tile gets one, unless another group is meant.
// CHECK-LABEL: tsched.module {
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @product(%X, %W)
// CHECK-NEXT:    tsched.tile %[[B]] chosen = [128, 128, 64] {source = "autotune"}
// CHECK-NEXT:    tsched.return %[[B]]
// ONE-LABEL: tsched.module {
// ONE-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @product(%X, %W)
// ONE-NEXT:    tsched.return %[[B]]
tsched.module {
  %b = tsched.fuse @product(%X, %W)
  tsched.return %b
}

// -----

// Two lines that stand alone, as results are attached to a text.
// CHECK:      tsched.tile %attn candidates = [{{.*}}] chosen = [128, 128, 64] {source = "autotune"}
// CHECK-NEXT: tsched.collective %attn {algo = "ring", quantize = "fp8"}
tsched.tile %attn candidates = [[128,128,64], [64,128,64]]
tsched.collective %attn
