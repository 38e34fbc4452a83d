//! The kit of a backend on the backend `cuda`, over the mock libraries.

use std::path::Path;
use std::sync::Arc;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Outcome, Subject, Suite, backend};
use espalier_interface::{Backend, Component, Instance, Options, Result, Role, Services};

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The backend, whose products of bf16 are of a kind.
const fn mock(create: fn(&Options, Arc<dyn Services>) -> Result<Instance>) -> Component {
    Component {
        name: "cuda",
        role: Role::BACKEND,
        doc: "the backend `cuda` without a card",
        options: &[],
        capabilities: &[("compute", "bf16,f32")],
        create,
    }
}

fn create(products: &str, services: Arc<dyn Services>) -> Result<Instance> {
    let options = espalier_tests_gpu::options(folder(), products);
    Ok(Instance::Backend(Box::new(CudaBackend::new(
        &options, services,
    )?)))
}

const CUBLASLT: Component = mock(|_, services| create("cublaslt", services));
const OWN: Component = mock(|_, services| create("own", services));

#[test]
fn the_kit_of_a_backend_passes() {
    assert_kit_passes(&CUBLASLT);
}

/// The ops that multiply. The others do not know what computes products.
#[test]
fn the_kit_of_a_backend_passes_with_its_own_products() {
    assert_kit_passes(&OWN);
}

fn assert_kit_passes(component: &'static Component) {
    let mut suite = Suite::new(component.name);
    backend(&Subject::<dyn Backend>::backend(component), &mut suite);
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
