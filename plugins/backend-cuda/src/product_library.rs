//! cuBLASLt for a card: products of bf16, and the algorithm that was chosen for each.
//!
//! An algorithm is the first of cuBLASLt's heuristic, never that of a measurement. It depends on
//! the card, the library and the [`Problem`] alone, and so do the bits of a product.
#![allow(unsafe_code)] // Calls of cuBLASLt.

mod descriptors;
mod problem;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasStatus_t, libraryPropertyType,
};
use espalier_interface::{DType, ErrorCode, PluginError, Result};

use crate::card::Card;
use crate::current;
use crate::functions::CublasLt;
use descriptors::{Layout, Operation};
use problem::{ALIGNMENT, Side};

pub use problem::Problem;

/// Bytes that the workspace's address is a multiple of.
const WORKSPACE_ALIGNMENT: u64 = 256;

/// The least major compute capability of cards whose products are faster with a large workspace.
const LARGE_CAPABILITY: i32 = 9;

/// Workspace on such cards and on others: the sizes of cuBLAS itself (the documentation of
/// `cublasSetWorkspace`).
const LARGE_WORKSPACE_BYTES: usize = 32 << 20;
const WORKSPACE_BYTES: usize = 8 << 20;

/// Most problems whose algorithms are kept. Beyond, all are forgotten, and chosen again alike.
const MOST_KEPT: usize = 4096;

/// What the user can do about a library that does not start.
const GET_OTHER: &str = "update NVIDIA's driver, or install a cuBLAS for the version of CUDA that it serves, or set backend.cuda.products = \"own\", whose products are several times slower";

/// cuBLASLt for a card.
pub struct ProductLibrary {
    card: Arc<Card>,
    library: &'static CublasLt,
    handle: cublasLtHandle_t,
    /// By problem; none where the library has no algorithm.
    kept: Mutex<HashMap<Problem, Option<Chosen>>>,
}

/// cuBLASLt as it is installed.
#[derive(Clone, Copy)]
pub struct Installed {
    library: &'static CublasLt,
    /// Its version.
    pub version: Version,
}

/// A product's algorithm, and the descriptors that it was chosen for.
struct Chosen {
    operation: Operation,
    /// cuBLASLt's first and second matrix, and the result.
    layouts: [Layout; 3],
    algorithm: cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
}

/// `cublasLtMatmulHeuristicResult_t`, whose status may be one that cudarc's enumeration does not
/// have.
#[repr(C)]
struct Suggestion {
    algorithm: cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
    status: u32,
    waves: f32,
    reserved: [i32; 4],
}

/// A launch of a product.
pub struct Multiplication {
    /// What is multiplied.
    pub problem: Problem,
    /// Addresses of our a and b.
    pub matrices: [u64; 2],
    /// Factor of the sums.
    pub alpha: f32,
    /// Address of what is added, which may be that of the result.
    pub added: Option<u64>,
    /// Address of the bias; 0 where there is none.
    pub bias: u64,
    /// Address of the result.
    pub result: u64,
    /// Address of [`ProductLibrary::workspace_bytes`] bytes.
    pub workspace: u64,
}

/// cuBLASLt's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version([i32; 3]);

// SAFETY: the handle may be used from any thread (cuBLAS' documentation, "Thread safety").
unsafe impl Send for ProductLibrary {}
// SAFETY: as above.
unsafe impl Sync for ProductLibrary {}

impl Drop for ProductLibrary {
    fn drop(&mut self) {
        self.kept().clear();
        if self.card.enter().is_ok() {
            // SAFETY: cuBLASLt made the handle, and the device's work is done.
            unsafe { (self.library.destroy)(self.handle) };
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Version {
    fn of(library: &CublasLt) -> Result<Self> {
        use libraryPropertyType as Part;
        let mut parts = [0; 3];
        let names = [Part::MAJOR_VERSION, Part::MINOR_VERSION, Part::PATCH_LEVEL];
        for (part, name) in parts.iter_mut().zip(names) {
            // SAFETY: cuBLASLt writes a number.
            called("version", unsafe { (library.property)(name, part) })?;
        }
        Ok(Version(parts))
    }
}

impl Installed {
    /// An opened library with its version, which needs no card.
    ///
    /// # Errors
    /// `DEVICE` where it does not tell it.
    pub fn of(library: &'static CublasLt) -> Result<Self> {
        let version = Version::of(library)?;
        Ok(Installed { library, version })
    }
}

/// The result of a call: `OUT_OF_MEMORY`, or `DEVICE` with the status's name.
fn called(what: &str, status: u32) -> Result<()> {
    use cublasStatus_t as Status;
    if status == Status::CUBLAS_STATUS_SUCCESS as u32 {
        return Ok(());
    }
    let named = [
        Status::CUBLAS_STATUS_NOT_INITIALIZED,
        Status::CUBLAS_STATUS_ALLOC_FAILED,
        Status::CUBLAS_STATUS_INVALID_VALUE,
        Status::CUBLAS_STATUS_ARCH_MISMATCH,
        Status::CUBLAS_STATUS_MAPPING_ERROR,
        Status::CUBLAS_STATUS_EXECUTION_FAILED,
        Status::CUBLAS_STATUS_INTERNAL_ERROR,
        Status::CUBLAS_STATUS_NOT_SUPPORTED,
        Status::CUBLAS_STATUS_LICENSE_ERROR,
    ];
    let name = named.iter().find(|name| **name as u32 == status);
    let name = name.map_or_else(|| format!("status {status}"), |name| format!("{name:?}"));
    let code = if status == Status::CUBLAS_STATUS_ALLOC_FAILED as u32 {
        ErrorCode::OUT_OF_MEMORY
    } else {
        ErrorCode::DEVICE
    };
    Err(PluginError::new(code, format!("cuBLASLt: {what}: {name}")))
}

impl ProductLibrary {
    /// The library, started for a card.
    ///
    /// # Errors
    /// `DEVICE` where it does not serve the card or its driver, `OUT_OF_MEMORY`.
    pub fn new(card: Arc<Card>, Installed { library, version }: Installed) -> Result<Self> {
        card.enter()?;
        let mut handle = null_mut();
        // SAFETY: cuBLASLt writes a handle for the current context.
        let started = called("start", unsafe { (library.create)(&raw mut handle) });
        started.map_err(|error| PluginError {
            message: format!("{} of version {version}; {GET_OTHER}", error.message),
            ..error
        })?;
        Ok(ProductLibrary {
            card,
            library,
            handle,
            kept: Mutex::default(),
        })
    }

    /// Bytes of workspace that a launch has, from a multiple of 64 on.
    pub fn workspace_bytes(&self) -> usize {
        self.algorithm_bytes() + (WORKSPACE_ALIGNMENT - ALIGNMENT) as usize
    }

    /// Most bytes of workspace of an algorithm.
    fn algorithm_bytes(&self) -> usize {
        if self.card.capability[0] >= LARGE_CAPABILITY {
            LARGE_WORKSPACE_BYTES
        } else {
            WORKSPACE_BYTES
        }
    }

    /// Whether there is an algorithm for a problem, which is then chosen.
    ///
    /// # Errors
    /// `DEVICE`, `OUT_OF_MEMORY`.
    pub fn serves(&self, problem: &Problem) -> Result<bool> {
        if !problem.is_regular() {
            return Ok(false);
        }
        self.card.enter()?;
        let mut kept = self.kept();
        Ok(self.find(&mut kept, problem)?.is_some())
    }

    /// Puts a product on this thread's stream. False where there is no algorithm for it, and
    /// nothing was launched.
    ///
    /// # Errors
    /// `DEVICE`, `OUT_OF_MEMORY`.
    pub fn launch(&self, of: &Multiplication) -> Result<bool> {
        let result = of.result;
        let added = of.added.unwrap_or(result);
        let [a, b] = of.matrices;
        let addresses = [a, b, result, added, of.bias];
        let is_aligned = addresses.iter().all(|at| at.is_multiple_of(ALIGNMENT));
        if !of.problem.is_regular() || !is_aligned {
            return Ok(false);
        }
        let mut kept = self.kept();
        let Some(chosen) = self.find(&mut kept, &of.problem)? else {
            return Ok(false);
        };
        if of.problem.has_bias {
            descriptors::set_bias(self.library, &chosen.operation, of.bias)?;
        }
        let factors = [of.alpha, f32::from(u8::from(of.added.is_some()))];
        let [first, second, sum] = chosen.layouts.each_ref().map(Layout::raw);
        let workspace = of.workspace.next_multiple_of(WORKSPACE_ALIGNMENT);
        // SAFETY: the launch has the memory of its matrices, which have these layouts, and of the
        // workspace. cuBLASLt reads the factors and descriptors before it returns.
        called("product", unsafe {
            (self.library.multiply)(
                self.handle,
                chosen.operation.raw(),
                (&raw const factors[0]).cast(),
                b as *const _,
                first,
                a as *const _,
                second,
                (&raw const factors[1]).cast(),
                added as *const _,
                sum,
                result as *mut _,
                sum,
                &raw const chosen.algorithm,
                workspace as *mut _,
                chosen.workspace_bytes,
                current::stream(),
            )
        })?;
        Ok(true)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Problem, Option<Chosen>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept choice for a problem, made if there is none.
    fn find<'a>(
        &self,
        kept: &'a mut HashMap<Problem, Option<Chosen>>,
        problem: &Problem,
    ) -> Result<Option<&'a Chosen>> {
        if kept.len() >= MOST_KEPT && !kept.contains_key(problem) {
            kept.clear();
        }
        let chosen = match kept.entry(*problem) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(self.choose(problem)?),
        };
        Ok(chosen.as_ref())
    }

    /// The first algorithm of cuBLASLt's heuristic.
    fn choose(&self, problem: &Problem) -> Result<Option<Chosen>> {
        let library = self.library;
        let operation = descriptors::operation(library, problem)?;
        let side = |side: Side| {
            let (size, stride) = problem.layout(side);
            descriptors::layout(library, DType::BF16, size, stride)
        };
        let [rows, columns, _] = problem.extents;
        let layouts = [
            side(Side::First)?,
            side(Side::Second)?,
            descriptors::layout(library, problem.result, [columns, rows], columns)?,
        ];
        let preference = descriptors::preference(library, self.algorithm_bytes() as u64)?;
        let [first, second, sum] = layouts.each_ref().map(Layout::raw);
        let mut found = Suggestion {
            algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace_bytes: 0,
            status: 0,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut count = 0;
        // SAFETY: the descriptors live, and cuBLASLt writes at most one result.
        let status = unsafe {
            (library.heuristic)(
                self.handle,
                operation.raw(),
                first,
                second,
                sum,
                sum,
                preference.raw(),
                1,
                (&raw mut found).cast(),
                &raw mut count,
            )
        };
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as u32 {
            return Ok(None);
        }
        called("choice of an algorithm", status)?;
        let is_found = count > 0 && found.status == cublasStatus_t::CUBLAS_STATUS_SUCCESS as u32;
        Ok(is_found.then_some(Chosen {
            operation,
            layouts,
            algorithm: found.algorithm,
            workspace_bytes: found.workspace_bytes,
        }))
    }
}
