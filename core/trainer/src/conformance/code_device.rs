//! The backends of a registry -> a device that compiles the device code of quantizers.

use espalier_config::ResolvedConfig;
use espalier_conformance::{Checked, Fault};
use espalier_interface::Device;
use espalier_registry::Registry;
use espalier_system::threads::HostServices;

/// The first device of the first backend that compiles CUDA C++ and has one here. Devices live as
/// long as the process.
///
/// # Errors
/// Skipped where there is no such backend, or none that opens a device, with its reason.
pub fn open(registry: &Registry, config: &ResolvedConfig) -> Checked<&'static dyn Device> {
    let mut reasons = Vec::new();
    for name in registry.backends_with_code("cuda") {
        match of_backend(registry, config, &name) {
            Ok(device) => return Ok(device),
            Err(reason) => reasons.push(format!("backend `{name}`: {reason}")),
        }
    }
    if reasons.is_empty() {
        reasons.push("no backend is found that says so".to_owned());
    }
    Err(Fault::Skipped(format!(
        "no device here compiles device code: {}",
        reasons.join("; ")
    )))
}

fn of_backend(
    registry: &Registry,
    config: &ResolvedConfig,
    name: &str,
) -> Result<&'static dyn Device, String> {
    let services = HostServices::start(None).map_err(|error| error.to_string())?;
    let options = config.config().section("backend", name);
    let options = options.cloned().unwrap_or_default();
    let created = registry.create_backend(name, &options, services);
    let (backend, _) = created.map_err(|error| error.to_string())?;
    // A backend outlives its devices.
    let backend = Box::leak(backend);
    let count = backend.devices().map_err(|error| error.message)?.len();
    if count == 0 {
        return Err("it has no device here".to_owned());
    }
    let device = backend.open(0).map_err(|error| error.message)?;
    Ok(Box::leak(device))
}
