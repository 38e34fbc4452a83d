//! Checks the members' `Cargo.toml`: allowed dependencies between crates, and shared settings.
//!
//! hosts -> compare -> report -> trainer -> engine -> plan -> registry -> config -> data, compile,
//! system -> interface <- plugins -> kernels -> interface; families -> decoder -> interface;
//! backends -> tensor-ops, driver-device -> host-device -> interface; trainer -> conformance ->
//! interface; hosts -> hub -> system; tests -> conformance. A plugin depends on no other plugin and
//! never on the trainer; the trainer depends neither on kernels nor on what plugins share nor on
//! plugins.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Findings;
use crate::workspace::Workspace;

const INTERFACE: &str = "espalier-interface";
const TRAINER: &str = "espalier-trainer";
const KERNELS: &str = "espalier-kernels";
const DECODER: &str = "espalier-decoder";
const HOST_DEVICE: &str = "espalier-host-device";
const DRIVER_DEVICE: &str = "espalier-driver-device";
const TENSOR_OPS: &str = "espalier-tensor-ops";
const CONFORMANCE: &str = "espalier-conformance";
const HUB: &str = "espalier-hub";
const SAMPLES: &str = "espalier-samples";

/// The crates of the core, lowest first. Each may depend on those before it.
const FLOORS: [&str; 11] = [
    "espalier-numeric",
    "espalier-system",
    "espalier-compile",
    "espalier-data",
    "espalier-config",
    "espalier-registry",
    "espalier-plan",
    "espalier-engine",
    TRAINER,
    "espalier-report",
    "espalier-compare",
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    for package in &workspace.packages {
        let path = workspace.root.join(&package.folder).join("Cargo.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: Table = text
            .parse()
            .with_context(|| format!("cannot parse {}", path.display()))?;
        check_manifest(&package.name, &package.folder, &manifest, findings);
    }
    Ok(())
}

fn check_manifest(name: &str, folder: &Path, manifest: &Table, findings: &mut Findings) {
    if manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        != Some(&true.into())
    {
        findings.problem(format!("{name}: `[lints] workspace = true` is missing"));
    }
    // The interface's version says which plugins it takes; a test compares it.
    let own_version = name == "espalier-interface";
    for key in ["version", "edition", "license"] {
        if key == "version" && own_version {
            continue;
        }
        let value = manifest.get("package").and_then(|package| package.get(key));
        if value.and_then(|value| value.get("workspace")) != Some(&true.into()) {
            findings.problem(format!("{name}: `{key}.workspace = true` is missing"));
        }
    }
    for section in SECTIONS {
        let Some(Value::Table(dependencies)) = manifest.get(section) else {
            continue;
        };
        for (dependency, value) in dependencies {
            if value.get("workspace") != Some(&true.into()) {
                findings.problem(format!(
                    "{name}: `{dependency}` has its own version; versions belong into the \
                     workspace's Cargo.toml"
                ));
            }
            let allowed = allowed(folder, name, dependency)
                || section == "dev-dependencies" && allowed_in_tests(folder, dependency);
            if dependency.starts_with("espalier-") && !allowed {
                findings.problem(format!(
                    "{name} must not depend on {dependency} ({section})"
                ));
            }
        }
    }
}

/// Whether the arrow `name -> dependency` exists in the architecture.
fn allowed(folder: &Path, name: &str, dependency: &str) -> bool {
    match folder.iter().next().and_then(|part| part.to_str()) {
        Some("core") if FLOORS.contains(&name) => {
            let below = FLOORS.iter().take_while(|floor| **floor != name);
            dependency == INTERFACE
                || below.into_iter().any(|floor| *floor == dependency)
                || name == TRAINER && dependency == CONFORMANCE
        }
        Some("core") if [DECODER, CONFORMANCE, HOST_DEVICE].contains(&name) => {
            dependency == INTERFACE
        }
        Some("core") if [DRIVER_DEVICE, TENSOR_OPS].contains(&name) => {
            [INTERFACE, HOST_DEVICE].contains(&dependency)
        }
        Some("core") if name == HUB => [INTERFACE, "espalier-system"].contains(&dependency),
        // The check of the boundary reads the interface's layout.
        Some("xtask") => dependency == INTERFACE,
        Some("core") => false,
        Some("kernels") => dependency == INTERFACE,
        Some("plugins") => [
            INTERFACE,
            KERNELS,
            DECODER,
            HOST_DEVICE,
            DRIVER_DEVICE,
            TENSOR_OPS,
        ]
        .contains(&dependency),
        // `hosts/shipped` links the shipped plugins.
        Some("hosts") => ![
            KERNELS,
            DECODER,
            HOST_DEVICE,
            DRIVER_DEVICE,
            TENSOR_OPS,
            CONFORMANCE,
        ]
        .contains(&dependency),
        Some("tests") => true,
        _ => false,
    }
}

/// Whether the arrow exists for tests alone: the kit computes the distance between two runs;
/// `tests/samples` leaves a test out where the machine lacks what it needs.
fn allowed_in_tests(folder: &Path, dependency: &str) -> bool {
    let above = ["kernels", "plugins", "hosts", "core/compare"];
    match dependency {
        CONFORMANCE => above.iter().any(|part| folder.starts_with(part)),
        SAMPLES => folder.starts_with("xtask"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
