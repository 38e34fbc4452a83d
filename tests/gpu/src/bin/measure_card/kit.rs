//! The kit of a backend on the card: how many checks pass, and which do not.

use anyhow::{Result, ensure};
use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Check, Outcome, Subject, Suite, backend, ops};
use espalier_interface::{Backend, Component, Instance, OptionKind, OptionSpec, Role};
use serde_json::json;

use crate::rows::Rows;
use crate::setting::Setting;

/// The backend, without the options that are not varied.
const CUDA: Component = Component {
    name: "cuda",
    role: Role::BACKEND,
    doc: "NVIDIA's cards",
    options: &[],
    capabilities: &[("compute", "bf16,f32")],
    create: |options, services| {
        Ok(Instance::Backend(Box::new(CudaBackend::new(
            options, services,
        )?)))
    },
};

/// The backend with the kernels beside this program, which the kit creates with the defaults of its
/// options. Lives until the process ends.
fn component(setting: &Setting) -> &'static Component {
    let Some(folder) = &setting.kernels else {
        return &CUDA;
    };
    let kernels = OptionSpec {
        name: "kernels",
        kind: OptionKind::TEXT,
        default: json!(folder).to_string().leak(),
        range: "",
        doc: "folder of kernels that came compiled",
    };
    Box::leak(Box::new(Component {
        options: vec![kernels].leak(),
        ..CUDA
    }))
}

/// The check that small runs keep. All of them take minutes on a model of a card.
const SMALL: &str = "op.scale";

/// Measures the part.
///
/// # Errors
/// Where a check fails.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let mut told = Ok(());
    let mut counts = [0; 3];
    let watch = |check: &Check| {
        let (index, outcome, why) = match &check.outcome {
            Outcome::Passed => (0, "passed", ""),
            Outcome::Failed(why) => (1, "failed", why.as_str()),
            Outcome::Skipped(why) => (2, "skipped", why.as_str()),
        };
        counts[index] += 1;
        if index > 0 && told.is_ok() {
            told = rows.add(&json!({"check": check.name, "outcome": outcome, "why": why}));
        }
    };
    let mut suite = Suite::watched(CUDA.name, watch);
    if setting.is_small {
        small(setting, &mut suite);
    } else {
        let component = component(setting);
        backend(&Subject::<dyn Backend>::backend(component), &mut suite);
    }
    drop(suite);
    told?;
    let [passed, failed, skipped] = counts;
    rows.add(&json!({"passed": passed, "failed": failed, "skipped": skipped}))?;
    ensure!(failed == 0, "{failed} checks of the kit failed");
    Ok(())
}

/// The check of one op.
fn small(setting: &Setting, suite: &mut Suite<'_>) {
    for op in ops::all().filter(|op| op.name == SMALL) {
        suite.check(op.name, op.asserts, || {
            let backend = setting.backend().map_err(|error| error.to_string())?;
            let device = backend.open(0)?;
            ops::check(device.as_ref(), op)
        });
    }
}
