//! The roles of components, and the plain traits that their authors implement.

mod adapter;
mod backend;
mod collective;
mod family;
mod host_memory;
mod kernel_request;
mod op_id;
mod quantizer;
mod sharding;

pub use adapter::{Adapter, InitialValues, InitialiseCall};
pub use backend::{
    Backend, Buffer, BufferRange, Decoder, Device, DeviceInfo, Event, Kernel, Kernels, Launch,
    Memory, MemoryKind, Prepared, Stream, Streams,
};
pub use collective::{
    Collective, CollectiveCall, CollectiveInfo, CollectiveOp, Group, JoinRequest, MemberDevice,
    Members,
};
pub use family::Family;
pub use host_memory::HostMemory;
pub use kernel_request::{KernelRequest, Operand, ParamOperand, WeightLayout};
pub use op_id::OpId;
pub use quantizer::Quantizer;
pub use sharding::Sharding;

/// What a component does for the core, by name; the set may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role(pub &'static str);

impl Role {
    /// Turns a `config.json` into a model.
    pub const FAMILY: Role = Role("family");
    /// Adds trainable params to sites.
    pub const ADAPTER: Role = Role("adapter");
    /// Packs weights.
    pub const QUANTIZER: Role = Role("quantizer");
    /// Decides where bytes are kept and the order of a step.
    pub const SHARDING: Role = Role("sharding");
    /// Runs kernels on devices.
    pub const BACKEND: Role = Role("backend");
    /// Communicates between ranks.
    pub const COLLECTIVE: Role = Role("collective");

    /// All roles of this version.
    pub const ALL: [Role; 6] = [
        Role::FAMILY,
        Role::ADAPTER,
        Role::QUANTIZER,
        Role::SHARDING,
        Role::BACKEND,
        Role::COLLECTIVE,
    ];

    /// The role called `name`.
    pub fn from_name(name: &str) -> Option<Role> {
        Self::ALL.into_iter().find(|role| role.0 == name)
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
