//! `check_op OP CASES PRODUCTS LIBRARIES CACHE`: the kit's check of an op, such as `op.attention`,
//! on the backend `cuda` over mock libraries, with the cases whose names begin with CASES. PRODUCTS
//! says what computes products: `own` or `cublaslt`. Writes `passed`, or `failed` or `skipped` with
//! the reason.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Checked, Fault, Threads, ops};
use espalier_interface::Backend;

fn check([op, cases, products]: [&str; 3], libraries: &Path, cache: &Path) -> Checked {
    let options = espalier_tests_gpu::options_of(libraries, cache, products);
    let check = ops::all().find(|check| check.name == op);
    let check = check.ok_or_else(|| format!("expected an op of the kit, found `{op}`"))?;
    let backend = CudaBackend::new(&options, Arc::new(Threads::new(2)))?;
    let device = backend.open(0)?;
    ops::check_cases(device.as_ref(), check, cases)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [op, cases, products, libraries, cache] = &arguments[..] else {
        panic!("expected OP CASES PRODUCTS LIBRARIES CACHE, found {arguments:?}");
    };
    let said = match check(
        [op, cases, products],
        Path::new(libraries),
        Path::new(cache),
    ) {
        Ok(()) => "passed".to_owned(),
        Err(Fault::Failed(reason)) => format!("failed: {reason}"),
        Err(Fault::Skipped(reason)) => format!("skipped: {reason}"),
    };
    let written = std::io::stdout().write_all(said.as_bytes());
    written.expect("the standard output takes a line");
}
