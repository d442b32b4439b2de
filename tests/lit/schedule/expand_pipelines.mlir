// RUN: tessera-opt %s --split -p schedule-expand-pipelines | filecheck %s
// RUN: tessera-opt %s --split -p schedule-expand-pipelines | tessera-opt --split | filecheck %s

// A pipeline of three ranks: as many forwards first as there are stages behind a rank, then one and one.
// CHECK: tsched.pipeline @train {axis = "pp", stages = 3, microbatch = 3, orders = [{{\[}}"F0", "F1", "F2", "B0", "B1", "B2"], ["F0", "F1", "B0", "F2", "B1", "B2"], ["F0", "B0", "F1", "B1", "F2", "B2"]]}
tsched.pipeline @train { axis="pp", stages=3, microbatch=3 }

// -----

// In a region stages and chunks are those of the mesh and of the text: F0.1 is microbatch 0 in chunk 1.
// CHECK-LABEL: tsched.module attributes {mesh = {pp = 2}} {
// CHECK-NEXT:    %{{.*}} = tsched.pipeline.region(schedule = "interleaved", axis = "pp", microbatch = 2, chunks = 2, orders = [{{\[}}"F0", "F1", "F0.1", "F1.1", "B0.1", "B1.1", "B0", "B1"], ["F0", "F1", "F0.1", "B0.1", "F1.1", "B1.1", "B0", "B1"]]) {
// CHECK-NEXT:      %{{.*}} = tsched.stage @f
tsched.module attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "interleaved", axis = "pp", microbatch = 2, chunks = 2) {
    %a = tsched.stage @f(%x) {index = 0}
    %b = tsched.stage @f(%a) {index = 1}
    %c = tsched.stage @f(%b) {index = 2}
    %d = tsched.stage @f(%c) {index = 3}
    tsched.yield %d
  }
  tsched.return %y
}

// -----

// Orders that are written by hand stay: here all forwards come first (GPipe).
// CHECK: tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2, orders = [{{\[}}"F0", "F1", "B0", "B1"], ["F0", "F1", "B0", "B1"]]}
tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2, orders = [["F0", "F1", "B0", "B1"], ["F0", "F1", "B0", "B1"]]}
