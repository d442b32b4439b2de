; Between rounds of a loop: whether a signal of this process has come that Python must handle, such as Ctrl-C.

; The caller's: rounds that it may go on without asking here, when it asked last, when Python was asked last.
%Rounds = type { i64, i64, i64 }

; Once in about a tenth of a second (2^28 cycles) Python's handlers get their turn, with the GIL. Where the last rounds
; were short (2^20 cycles for all of them), the caller is let go for 15 more. Gives 0, or -2 when a handler has raised:
; what it raised stays with the thread, and the caller must end its program at once.
define i64 @tessera_poll(ptr %rounds) #0 {
entry:
  %now = call i64 @llvm.readcyclecounter()
  %here.at = getelementptr %Rounds, ptr %rounds, i32 0, i32 1
  %here = load i64, ptr %here.at, align 8
  store i64 %now, ptr %here.at, align 8
  %since = sub i64 %now, %here
  %short = icmp ult i64 %since, 1048576
  %more = select i1 %short, i64 15, i64 0
  store i64 %more, ptr %rounds, align 8
  %asked.at = getelementptr %Rounds, ptr %rounds, i32 0, i32 2
  %asked = load i64, ptr %asked.at, align 8
  %passed = sub i64 %now, %asked
  %early = icmp ult i64 %passed, 268435456
  br i1 %early, label %go_on, label %late
late:
  store i64 %now, ptr %asked.at, align 8
  %first = icmp eq i64 %asked, 0
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
