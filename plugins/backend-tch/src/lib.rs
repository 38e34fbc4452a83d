//! The backend `tch`: every op by libtorch 2.13.0, on this machine's processors or CUDA devices.
//!
//! This library needs no libtorch. It holds a second library, the engine, which is linked with
//! libtorch. `create` finds libtorch, checks its version, opens it by its full path, and then opens
//! the engine. So a host without libtorch reads this plugin, lists it, and tells which file is
//! missing.
//!
//! The engine cannot be this library itself:
//!
//! - The host opens a plugin with all symbols bound at once. libtorch's classes are data symbols,
//!   which cannot be bound late either. A library linked with libtorch would not open without it.
//! - A path to libtorch in the library (`RUNPATH`) is fixed when it is built. `LIBTORCH` and
//!   `backend.tch.libtorch` choose one when it runs.
//! - Another version of libtorch would fail with the name of a C++ symbol.
//!
//! The engine is included as bytes, so the plugin is one file, and the host's hash covers the code
//! that runs. Between the two is the boundary of the interface, the same as between host and
//! plugin.
//!
//! The engine in turn holds its CUDA shim as bytes, for the same reasons: it is linked with
//! libtorch's CUDA libraries, which a libtorch for processors lacks. They are opened where
//! `backend.tch.device` is `cuda`, and nowhere else.

mod engine;
pub mod libtorch;
mod opened;

use espalier_interface::{Component, Instance, OptionKind, OptionSpec, Role};

/// The version of libtorch that the engine is built with. It has no stable interface in C++.
pub const LIBTORCH_VERSION: &str = "2.13.0";

const TCH: Component = Component {
    name: "tch",
    role: Role::BACKEND,
    doc: "this machine's processors or CUDA devices by libtorch 2.13.0; computes in bf16 or f32",
    options: &[
        OptionSpec {
            name: "libtorch",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "folder of libtorch, with lib/libtorch_cpu.so; unset: LIBTORCH, LIBTORCH_USE_PYTORCH, or libtorch/ near the host",
        },
        OptionSpec {
            name: "device",
            kind: OptionKind::TEXT,
            default: "\"cpu\"",
            range: "cpu | cuda",
            doc: "the devices that there are: the processors as one, or each CUDA device, which needs a libtorch with CUDA",
        },
        OptionSpec {
            name: "mapped_dir",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "folder on a disk for weights that memory has no room for; unset: TMPDIR, else /var/tmp",
        },
        OptionSpec {
            name: "device_memory",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "bounds what each device holds, such as 64MiB, as if it were a card; unset: all of the machine's",
        },
    ],
    capabilities: &[("compute", "bf16,f32")],
    create: |options, services| {
        let named = options.0.get("libtorch").and_then(|value| value.as_str());
        let libtorch = libtorch::find(named)?;
        let engine = opened::engine(&libtorch)?;
        if options
            .0
            .get("device")
            .is_some_and(|device| device == "cuda")
        {
            opened::cuda(&libtorch)?;
        }
        let mut options = options.clone();
        options.0.remove("libtorch");
        let backend = engine::create(engine, &options, services)?;
        Ok(Instance::Backend(backend))
    },
};

espalier_interface::declare_plugin! { name: "backend-tch", components: &[TCH] }
