// RUN: tessera-opt %s -p schedule-materialize-groups | filecheck %s

// A group that is materialized is a function too: with layouts of what it reads, its tiles and its collective.
// CHECK-LABEL: tsched.module {
// CHECK:         %f = tsched.materialize %attn : !tsched.func
// CHECK:       tsched.func @attention_func(%Q{{[_0-9]*}}: !tsched.value, %K{{[_0-9]*}}: !tsched.value, %V{{[_0-9]*}}: !tsched.value) -> !tsched.value {
// CHECK-NEXT:    tsched.layout %[[Q:[A-Z_0-9]+]] {partition = ["batch"], mesh_axes = ["dp"]}
// CHECK-NEXT:    %[[A:[a-z_0-9]+]] = tsched.fuse @attention(%[[Q]], %[[K:[A-Z_0-9]+]], %[[V:[A-Z_0-9]+]], %[[Q]]) {pattern = "flash_attention"}
// CHECK-NEXT:    tsched.tile %[[A]] candidates = [{{\[}}128, 128, 64], [64, 128, 64]]
// CHECK-NEXT:    tsched.tile %[[A]] chosen = 4 {source = "default", knob = "stages"}
// CHECK-NEXT:    tsched.collective %[[A]] {pattern = "RS_MM_AG", axis = "tp"}
// CHECK-NEXT:    tsched.return %[[A]]
// CHECK-NOT:   tsched.func @other
tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V, %Q) { pattern = "flash_attention" }
  tsched.layout %Q {partition = ["batch"], mesh_axes = ["dp"]}
  tsched.tile %attn candidates = [[128,128,64], [64,128,64]]
  tsched.tile %attn chosen = 4 {source = "default", knob = "stages"}
  tsched.collective %attn { pattern = "RS_MM_AG", axis = "tp" }
  %other = tsched.fuse @other(%attn)
  %f = tsched.materialize %attn : !tsched.func
  tsched.return %f, %other
}
