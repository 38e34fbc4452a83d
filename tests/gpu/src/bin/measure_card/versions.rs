//! What is measured, and on what: the host, the driver, the compiler, the card, Python's packages.

use std::process::Command;

use anyhow::Result;
use espalier_interface::Backend;
use serde_json::{Value as Json, json};

use crate::rows::Rows;
use crate::setting::{Setting, told};

/// Prints the versions of the packages that peers need and of NVIDIA's libraries.
const PACKAGES: &str = "
import importlib.metadata as m, json, sys
names = 'torch transformers peft bitsandbytes triton numpy nvidia-cuda-nvrtc nvidia-cublas'.split()
found = {'python': sys.version.split()[0]}
for name in names:
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: found[name] = None
print(json.dumps(found))
";

/// Measures the part.
///
/// # Errors
/// Where the card cannot be opened.
pub fn measure(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let mut version = setting.program("host")?;
    rows.add(&json!({"host": first_line(version.arg("--version"))}))?;
    let mut python = Command::new(&setting.python);
    let packages = printed(python.args(["-c", PACKAGES]));
    let packages = packages.and_then(|text| serde_json::from_str(&text).ok());
    rows.add(&json!({"python": packages.unwrap_or(Json::Null)}))?;
    let mut libc = Command::new("ldd");
    let mut smi = Command::new("nvidia-smi");
    let query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit";
    rows.add(&json!({
        "libc": first_line(libc.arg("--version")),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "nvidia_smi": first_line(smi.args([query, "--format=csv,noheader"])),
    }))?;
    let backend = setting.backend()?;
    for device in backend.devices().map_err(told)? {
        // A description begins with the card's name.
        let card = device.description.split(", compute").next();
        rows.add(&json!({
            "card": card,
            "device": device.name,
            "description": device.description,
            "instruction_set": device.instruction_set,
            "memory_bytes": device.memory_bytes,
            "free_bytes": device.free_bytes,
        }))?;
    }
    let nvrtc = backend.compiler_version();
    rows.add(&match nvrtc {
        Ok([major, minor]) => json!({"nvrtc": format!("{major}.{minor}")}),
        Err(error) => json!({"nvrtc": null, "why": error.message}),
    })
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn first_line(command: &mut Command) -> Option<String> {
    printed(command)?.lines().next().map(str::to_owned)
}
