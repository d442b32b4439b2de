; Between rounds of a loop: whether a signal of this process has come that Python must handle, such as Ctrl-C.

; `last` is the caller's, and begins at 0. Once in about a tenth of a second (2^28 cycles) Python's handlers get their
; turn, with the GIL; in other rounds this costs the reading of a counter. Gives 0, or -2 when a handler has raised:
; what it raised stays with the thread, and the caller must end its program at once.
define i64 @tessera_poll(ptr %last) #0 {
entry:
  %now = call i64 @llvm.readcyclecounter()
  %then = load i64, ptr %last, align 8
  %passed = sub i64 %now, %then
  %early = icmp ult i64 %passed, 268435456
  br i1 %early, label %go_on, label %late
late:
  store i64 %now, ptr %last, align 8
  %first = icmp eq i64 %then, 0
  br i1 %first, label %go_on, label %ask
ask:
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %go_on, label %stop
go_on:
  ret i64 0
stop:
  ret i64 -2
}
