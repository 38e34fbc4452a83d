//! The backend `null`: it counts memory, checks every call, and computes nothing. All bytes read
//! from it are zeros.
//!
//! Plans and schedules of models of any size run on it, quickly and without memory.

mod device;
mod kernels;
mod memory;
mod streams;

use espalier_interface::op::DEFINITIONS;
use espalier_interface::{
    Backend, Component, Device, DeviceInfo, Instance, OpId, OptionKind, OptionSpec, PluginError,
    Result, Role,
};

use device::NullDevice;
use memory::Ledger;

/// The backend.
struct Null {
    /// Bytes of its device.
    memory: u64,
    /// Ops that it has.
    ops: Vec<OpId>,
    /// Whether the host reaches pinned memory.
    pinned: bool,
    /// Bytes of logits in a chunk of the head, where it asks for a number.
    head_chunk_bytes: Option<u64>,
}

impl Backend for Null {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            name: "null:0".to_owned(),
            description: "a device that computes nothing".to_owned(),
            memory_bytes: self.memory,
            free_bytes: self.memory,
            instruction_set: "none".to_owned(),
            shares_host_memory: false,
            exact_memory: true,
            head_chunk_bytes: self.head_chunk_bytes,
        }])
    }

    fn ops(&self) -> Result<Option<Vec<OpId>>> {
        Ok(Some(self.ops.clone()))
    }

    fn open(&self, index: u32) -> Result<Box<dyn Device>> {
        match index {
            0 => Ok(Box::new(NullDevice::new(
                Ledger::new(self.memory, self.pinned),
                self.ops.clone(),
            ))),
            _ => Err(PluginError::invalid(format!(
                "backend `null` has one device, device {index} was asked for"
            ))),
        }
    }
}

const NULL: Component = Component {
    name: "null",
    role: Role::BACKEND,
    doc: "counts memory and checks every call, computes nothing",
    options: &[
        OptionSpec {
            name: "memory",
            kind: OptionKind::INTEGER,
            default: "1099511627776",
            range: "1..",
            doc: "bytes of the device",
        },
        OptionSpec {
            name: "ops",
            kind: OptionKind::TEXT,
            default: "\"\"",
            range: "",
            doc: "the ops that it has, `NAME` or `NAME.VERSION`, joined by commas; empty: all",
        },
        OptionSpec {
            name: "pinned",
            kind: OptionKind::BOOL,
            default: "true",
            range: "",
            doc: "pinned memory has an address for the host",
        },
        OptionSpec {
            name: "head_chunk_bytes",
            kind: OptionKind::INTEGER,
            default: "0",
            range: "0..",
            doc: "bytes of logits in a chunk of the head; 0: it does not ask for a number",
        },
    ],
    capabilities: &[],
    create: |options, _| {
        let names = options.text("ops")?;
        let names = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let mut ops: Vec<OpId> = names.map(OpId::named).collect();
        if ops.is_empty() {
            ops = DEFINITIONS.iter().map(|op| op.id()).collect();
        }
        Ok(Instance::Backend(Box::new(Null {
            memory: options.integer("memory")? as u64,
            ops,
            pinned: options.flag("pinned")?,
            head_chunk_bytes: Some(options.integer("head_chunk_bytes")? as u64)
                .filter(|&bytes| bytes > 0),
        })))
    },
};

espalier_interface::declare_plugin! { name: "null", components: &[NULL] }
