//! The functions of CUDA's libraries that this backend calls, by the names of their symbols.
//!
//! Handles and addresses have cudarc's types. Its own loader is not used: it opens libraries by
//! bare names, not where Python's packages have them, and panics where a symbol is missing. A call
//! returns its code as a number, because a driver may return one that cudarc's enumerations do not
//! have.
#![allow(unsafe_code)] // Symbols of libraries.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cudaDataType,
    libraryPropertyType,
};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUmodule, CUstream,
};
use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclUniqueId};
use cudarc::nvrtc::sys::nvrtcProgram;
use libloading::Library;

/// What a function returns where its table says nothing else: a code, 0 for success.
macro_rules! returned {
    () => {
        u32
    };
    ($other:ty) => {
        $other
    };
}

/// A table of functions.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident {
        $($field:ident: $symbol:literal($($argument:ty),* $(,)?) $(-> $other:ty)?;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $(#[doc = concat!("`", $symbol, "`.")]
            pub $field: unsafe extern "C" fn($($argument),*) -> returned!($($other)?),)*
        }

        impl $name {
            /// The functions of `library`.
            ///
            /// # Errors
            /// The name of a symbol that it lacks.
            pub fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the symbols have these types in every version of the library with this
                // major number, and the caller keeps the library open for ever.
                unsafe {
                    Ok($name {
                        $($field: *library.get($symbol.as_bytes()).map_err(|_| $symbol)?,)*
                    })
                }
            }
        }
    };
}

table! {
    /// The driver, `libcuda.so.1`.
    Driver {
        init: "cuInit"(c_uint);
        version: "cuDriverGetVersion"(*mut c_int);
        error_name: "cuGetErrorName"(u32, *mut *const c_char);
        error_text: "cuGetErrorString"(u32, *mut *const c_char);
        device_count: "cuDeviceGetCount"(*mut c_int);
        device: "cuDeviceGet"(*mut CUdevice, c_int);
        device_name: "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
        device_attribute: "cuDeviceGetAttribute"(*mut c_int, CUdevice_attribute, CUdevice);
        retain_context: "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
        release_context: "cuDevicePrimaryCtxRelease_v2"(CUdevice);
        set_context: "cuCtxSetCurrent"(CUcontext);
        memory_info: "cuMemGetInfo_v2"(*mut usize, *mut usize);
        alloc: "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
        free: "cuMemFree_v2"(CUdeviceptr);
        alloc_host: "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        free_host: "cuMemFreeHost"(*mut c_void);
        register_host: "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        unregister_host: "cuMemHostUnregister"(*mut c_void);
        copy_to_device: "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
        copy_to_host: "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
        copy_within: "cuMemcpyDtoDAsync_v2"(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fill: "cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
        stream: "cuStreamCreate"(*mut CUstream, c_uint);
        free_stream: "cuStreamDestroy_v2"(CUstream);
        synchronize: "cuStreamSynchronize"(CUstream);
        wait: "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
        event: "cuEventCreate"(*mut CUevent, c_uint);
        record: "cuEventRecord"(CUevent, CUstream);
        query: "cuEventQuery"(CUevent);
        free_event: "cuEventDestroy_v2"(CUevent);
        load_module: "cuModuleLoadData"(*mut CUmodule, *const c_void);
        unload_module: "cuModuleUnload"(CUmodule);
        function: "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
        set_attribute: "cuFuncSetAttribute"(CUfunction, CUfunction_attribute, c_int);
        launch: "cuLaunchKernel"(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void,
        );
    }
}

table! {
    /// The compiler of kernels, `libnvrtc.so`.
    Nvrtc {
        version: "nvrtcVersion"(*mut c_int, *mut c_int);
        create: "nvrtcCreateProgram"(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char,
            *const *const c_char,
        );
        destroy: "nvrtcDestroyProgram"(*mut nvrtcProgram);
        compile: "nvrtcCompileProgram"(nvrtcProgram, c_int, *const *const c_char);
        log_bytes: "nvrtcGetProgramLogSize"(nvrtcProgram, *mut usize);
        log: "nvrtcGetProgramLog"(nvrtcProgram, *mut c_char);
        cubin_bytes: "nvrtcGetCUBINSize"(nvrtcProgram, *mut usize);
        cubin: "nvrtcGetCUBIN"(nvrtcProgram, *mut c_char);
        ptx_bytes: "nvrtcGetPTXSize"(nvrtcProgram, *mut usize);
        ptx: "nvrtcGetPTX"(nvrtcProgram, *mut c_char);
    }
}

table! {
    /// The library of products, `libcublasLt.so`. It stands alone: it needs no other part of CUDA
    /// but the driver.
    CublasLt {
        property: "cublasLtGetProperty"(libraryPropertyType, *mut c_int);
        create: "cublasLtCreate"(*mut cublasLtHandle_t);
        destroy: "cublasLtDestroy"(cublasLtHandle_t);
        operation: "cublasLtMatmulDescCreate"(
            *mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType,
        );
        set_operation: "cublasLtMatmulDescSetAttribute"(
            cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize,
        );
        free_operation: "cublasLtMatmulDescDestroy"(cublasLtMatmulDesc_t);
        layout: "cublasLtMatrixLayoutCreate"(
            *mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64,
        );
        free_layout: "cublasLtMatrixLayoutDestroy"(cublasLtMatrixLayout_t);
        preference: "cublasLtMatmulPreferenceCreate"(*mut cublasLtMatmulPreference_t);
        set_preference: "cublasLtMatmulPreferenceSetAttribute"(
            cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        );
        free_preference: "cublasLtMatmulPreferenceDestroy"(cublasLtMatmulPreference_t);
        heuristic: "cublasLtMatmulAlgoGetHeuristic"(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t, *mut c_int,
        );
        multiply: "cublasLtMatmul"(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t, *mut c_void, usize, CUstream,
        );
    }
}

table! {
    /// The library of collective calls, `libnccl.so`, from 2.18 on.
    Nccl {
        version: "ncclGetVersion"(*mut c_int);
        words: "ncclGetErrorString"(u32) -> *const c_char;
        last_words: "ncclGetLastError"(ncclComm_t) -> *const c_char;
        unique_id: "ncclGetUniqueId"(*mut ncclUniqueId);
        join: "ncclCommInitRankConfig"(
            *mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t,
        );
        state: "ncclCommGetAsyncError"(ncclComm_t, *mut u32);
        abort: "ncclCommAbort"(ncclComm_t);
        destroy: "ncclCommDestroy"(ncclComm_t);
        begin: "ncclGroupStart"();
        end: "ncclGroupEnd"();
        all_gather: "ncclAllGather"(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, CUstream,
        );
        broadcast: "ncclBroadcast"(
            *const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream,
        );
        send: "ncclSend"(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream);
        receive: "ncclRecv"(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream);
    }
}
