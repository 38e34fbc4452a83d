//! The kit of a backend on the backend `cuda`, over the mock libraries.

use std::path::Path;
use std::sync::Arc;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Fault, Outcome, Subject, Suite, Threads, backend, ops};
use espalier_interface::{Backend, Component, Instance, Options, Result, Role, Services};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The backend, whose products of bf16 are `products`.
fn create(products: &str, services: Arc<dyn Services>) -> Result<CudaBackend> {
    CudaBackend::new(&espalier_tests_gpu::options(folder(), products), services)
}

const MOCK: Component = Component {
    name: "cuda",
    role: Role::BACKEND,
    doc: "the backend `cuda` without a card",
    options: &[],
    capabilities: &[("compute", "bf16,f32")],
    create: |_: &Options, services| Ok(Instance::Backend(Box::new(create("cublaslt", services)?))),
};

#[test]
fn products_pass_the_kit_with_kernels_of_the_backends_own() {
    let backend = create("own", Arc::new(Threads::new(2))).expect("a backend");
    let device = backend.open(0).expect("a device");
    let multiplies = |name: &str| name.starts_with("op.linear") || name == "op.matmul";
    let checks = ops::all().filter(|check| multiplies(check.name));
    for check in checks {
        let checked = ops::check_cases(device.as_ref(), check, "bf16");
        if let Err(Fault::Failed(why)) = checked {
            panic!("{}: {why}", check.name);
        }
    }
}

#[test]
fn the_kit_of_a_backend_passes() {
    let mut suite = Suite::new(MOCK.name);
    backend(&Subject::<dyn Backend>::backend(&MOCK), &mut suite);
    let report = suite.finish();
    report.assert_passed();
    // What is not offered: the one call of a linear with its adapter, which the core makes of two.
    for check in &report.checks {
        if let Outcome::Skipped(why) = &check.outcome {
            let name = &check.name;
            assert!(why.contains("version 4, expected"), "{name}: {why}");
        }
    }
}
