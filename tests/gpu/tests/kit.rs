//! The kit of a backend on the backend `cuda`, over the mock libraries.

use std::path::Path;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Outcome, Subject, Suite, backend};
use espalier_interface::{Backend, Component, Instance, Options, Role};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

const MOCK: Component = Component {
    name: "cuda",
    role: Role::BACKEND,
    doc: "the backend `cuda` without a card",
    options: &[],
    capabilities: &[("compute", "bf16,f32")],
    create: |_: &Options, services| {
        let backend = CudaBackend::new(&espalier_tests_gpu::options(folder()), services)?;
        Ok(Instance::Backend(Box::new(backend)))
    },
};

#[test]
fn the_kit_of_a_backend_passes() {
    let mut suite = Suite::new(MOCK.name);
    backend(&Subject::<dyn Backend>::backend(&MOCK), &mut suite);
    let report = suite.finish();
    report.assert_passed();
    // What is not offered: quantizers without a described format, and the one call of a linear with
    // its adapter, which the core makes of two.
    let expected = ["describes no format", "version 4, expected"];
    for check in &report.checks {
        if let Outcome::Skipped(why) = &check.outcome {
            assert!(
                expected.iter().any(|part| why.contains(part)),
                "{}: {why}",
                check.name
            );
        }
    }
}
