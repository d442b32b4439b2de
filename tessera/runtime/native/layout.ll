; The records that native code and Python share, and everything taken from the C library and from Python.
; Only baseline x86-64 is asked for, so one object serves every machine.

target triple = "x86_64-unknown-linux-gnu"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"

; A tensor: data, rank, dtype code, bytes, owner, owner kind, flags; then `rank` dims, then `rank` strides in bytes.
; Owner kinds: 0 none, 1 a block of our allocator, 2 a Python object, 3 a DLManagedTensor, 4 a DLManagedTensorVersioned.
; Flags: 1 C-contiguous, 2 read-only.
%Tensor = type { ptr, i32, i32, i64, ptr, i32, i32 }

; One input or output: dtype code, rank, bytes of an element.
%Port = type { i32, i32, i64 }

; One executable: check, shapes, workspace, entry; how many inputs, outputs, symbols, input dims, output dims;
; input ports, output ports, binding; calls that ran.
%Program = type { ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64, ptr, ptr, ptr, i64 }

; What Python fills in: the Tensor type, the offset of its handle, the ndarray type or null, the function that raises
; when there is no memory; then by dtype code the NumPy descriptor or null, the DLPack dtype word, bytes of an element;
; types of other libraries with their tables of C functions (`dlpack_import.ll`), the attribute that must be False and
; the method that must answer False, where they have those; and the DLPack dtype words that those may have.
%Environment = type { ptr, i64, ptr, ptr, [32 x ptr], [32 x i32], [32 x i64], [8 x [4 x ptr]], [32 x i32] }

@tessera_environment = global %Environment zeroinitializer, align 64
@handle_name = internal constant [15 x i8] c"tessera.tensor\00"

declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @aligned_alloc(i64, i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i64 @pthread_self()
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_sigmask(i32, ptr, ptr)

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @Py_IsInitialized()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare i32 @PyCapsule_IsValid(ptr, ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyBytes_AsString(ptr)
declare ptr @PyErr_NoMemory()
declare i32 @PyErr_CheckSignals()
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare void @PyErr_Clear()
declare i32 @PyCapsule_SetName(ptr, ptr)
declare i32 @PyCapsule_SetDestructor(ptr, ptr)
@_Py_FalseStruct = external global i8
@_Py_NotImplementedStruct = external global i8

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare i64 @llvm.ctlz.i64(i64, i1)
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)

; Rounding to nearest, denormals kept, no traps: the state compiled code runs in on every thread, whatever the process
; has set (some libraries flush denormals on the thread that loads them), so that results do not depend on who computes.
@float_mode = internal constant i32 8064

attributes #0 = { nounwind "target-cpu"="x86-64" "target-features"="+cx8,+fxsr,+sse,+sse2,+x87" "tune-cpu"="generic" }
; What no call runs: instructions are selected with little effort, which takes a tenth of the time (10 ms of 95 in all).
attributes #1 = { noinline nounwind optnone "target-cpu"="x86-64" "target-features"="+cx8,+fxsr,+sse,+sse2,+x87" "tune-cpu"="generic" }
