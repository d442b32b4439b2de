; DLPack, outwards: a capsule around a managed tensor that keeps our handle alive until its consumer lets it go.
; DLTensor: data 0, device type 8, device 12, rank 16, dtype 20, shape 24, strides 32, byte offset 40.
; Managed: tensor 0, context 48, deleter 56. Versioned: major 0, minor 4, context 8, deleter 16, flags 24, tensor 32.

@dlpack_name = internal constant [9 x i8] c"dltensor\00"
@dlpack_versioned_name = internal constant [19 x i8] c"dltensor_versioned\00"

; Consumers may call this on any thread, with or without the GIL, even while the interpreter goes down.
define internal void @release_handle(ptr %handle) #1 {
entry:
  %alive = call i32 @Py_IsInitialized()
  %up = icmp ne i32 %alive, 0
  br i1 %up, label %drop, label %done
drop:
  %state = call i32 @PyGILState_Ensure()
  call void @Py_DecRef(ptr %handle)
  call void @PyGILState_Release(i32 %state)
  br label %done
done:
  ret void
}

define internal void @delete_managed(ptr %managed) #1 {
  %context.at = getelementptr i8, ptr %managed, i64 48
  %handle = load ptr, ptr %context.at, align 8
  call void @release_handle(ptr %handle)
  call void @free(ptr %managed)
  ret void
}

define internal void @delete_versioned(ptr %managed) #1 {
  %context.at = getelementptr i8, ptr %managed, i64 8
  %handle = load ptr, ptr %context.at, align 8
  call void @release_handle(ptr %handle)
  call void @free(ptr %managed)
  ret void
}

; A consumer renames the capsule; one that still has its first name was never taken.
define internal void @destroy_managed(ptr %capsule) #1 {
entry:
  %ours = call i32 @PyCapsule_IsValid(ptr %capsule, ptr @dlpack_name)
  %unused = icmp ne i32 %ours, 0
  br i1 %unused, label %delete, label %done
delete:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @dlpack_name)
  call void @delete_managed(ptr %managed)
  br label %done
done:
  ret void
}

define internal void @destroy_versioned(ptr %capsule) #1 {
entry:
  %ours = call i32 @PyCapsule_IsValid(ptr %capsule, ptr @dlpack_versioned_name)
  %unused = icmp ne i32 %ours, 0
  br i1 %unused, label %delete, label %done
delete:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @dlpack_versioned_name)
  call void @delete_versioned(ptr %managed)
  br label %done
done:
  ret void
}

; Write a DLTensor that shows `tensor`, and its shape and strides (in elements) to `words`.
define internal void @fill_dltensor(ptr %to, ptr %words, ptr %tensor) #1 {
entry:
  %data = load ptr, ptr %tensor, align 8
  store ptr %data, ptr %to, align 8
  %device.at = getelementptr i8, ptr %to, i64 8
  store i64 1, ptr %device.at, align 8
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %to.rank = getelementptr i8, ptr %to, i64 16
  store i32 %rank, ptr %to.rank, align 4
  %dtype.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  %dtype = load i32, ptr %dtype.at, align 4
  %code.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 5, i32 %dtype
  %code = load i32, ptr %code.at, align 4
  %to.dtype = getelementptr i8, ptr %to, i64 20
  store i32 %code, ptr %to.dtype, align 4
  %wide = zext i32 %rank to i64
  %to.shape = getelementptr i8, ptr %to, i64 24
  store ptr %words, ptr %to.shape, align 8
  %strides = getelementptr i64, ptr %words, i64 %wide
  %to.strides = getelementptr i8, ptr %to, i64 32
  store ptr %strides, ptr %to.strides, align 8
  %to.offset = getelementptr i8, ptr %to, i64 40
  store i64 0, ptr %to.offset, align 8
  %item.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 6, i32 %dtype
  %item = load i64, ptr %item.at, align 8
  %dims = getelementptr i8, ptr %tensor, i64 40
  %from.strides = getelementptr i64, ptr %dims, i64 %wide
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %wide
  br i1 %more, label %one, label %done
one:
  %dim.at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim.at, align 8
  %dim.to = getelementptr i64, ptr %words, i64 %i
  store i64 %dim, ptr %dim.to, align 8
  %stride.at = getelementptr i64, ptr %from.strides, i64 %i
  %stride = load i64, ptr %stride.at, align 8
  %elements = sdiv i64 %stride, %item
  %stride.to = getelementptr i64, ptr %strides, i64 %i
  store i64 %elements, ptr %stride.to, align 8
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; A new DLPack capsule of a handle, plain or versioned (then with the read-only flag); null with an error set on failure.
define ptr @tessera_dlpack_export(ptr %handle, i32 %versioned) #1 {
entry:
  %tensor = call ptr @PyCapsule_GetPointer(ptr %handle, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %room
room:
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %wide = zext i32 %rank to i64
  %words.bytes = shl i64 %wide, 4
  %bytes = add i64 %words.bytes, 80
  %managed = call ptr @malloc(i64 %bytes)
  %full = icmp eq ptr %managed, null
  br i1 %full, label %no_memory, label %which
which:
  %words = getelementptr i8, ptr %managed, i64 80
  %new = icmp ne i32 %versioned, 0
  br i1 %new, label %modern, label %plain
plain:
  call void @fill_dltensor(ptr %managed, ptr %words, ptr %tensor)
  %plain.context = getelementptr i8, ptr %managed, i64 48
  store ptr %handle, ptr %plain.context, align 8
  %plain.deleter = getelementptr i8, ptr %managed, i64 56
  store ptr @delete_managed, ptr %plain.deleter, align 8
  %plain.capsule = call ptr @PyCapsule_New(ptr %managed, ptr @dlpack_name, ptr @destroy_managed)
  br label %check
modern:
  store i32 1, ptr %managed, align 4
  %minor = getelementptr i8, ptr %managed, i64 4
  store i32 0, ptr %minor, align 4
  %modern.context = getelementptr i8, ptr %managed, i64 8
  store ptr %handle, ptr %modern.context, align 8
  %modern.deleter = getelementptr i8, ptr %managed, i64 16
  store ptr @delete_versioned, ptr %modern.deleter, align 8
  %flags.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  %flags = load i32, ptr %flags.at, align 4
  %shifted = lshr i32 %flags, 1
  %readonly = and i32 %shifted, 1
  %readonly.wide = zext i32 %readonly to i64
  %modern.flags = getelementptr i8, ptr %managed, i64 24
  store i64 %readonly.wide, ptr %modern.flags, align 8
  %inner = getelementptr i8, ptr %managed, i64 32
  call void @fill_dltensor(ptr %inner, ptr %words, ptr %tensor)
  %modern.capsule = call ptr @PyCapsule_New(ptr %managed, ptr @dlpack_versioned_name, ptr @destroy_versioned)
  br label %check
check:
  %capsule = phi ptr [ %plain.capsule, %plain ], [ %modern.capsule, %modern ]
  %failed = icmp eq ptr %capsule, null
  br i1 %failed, label %undo, label %done
done:
  call void @Py_IncRef(ptr %handle)
  ret ptr %capsule
undo:
  call void @free(ptr %managed)
  br label %fail
no_memory:
  %error = call ptr @PyErr_NoMemory()
  br label %fail
fail:
  ret ptr null
}
