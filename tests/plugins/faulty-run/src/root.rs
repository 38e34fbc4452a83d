//! The library's root, written by hand: its methods can return any bytes.

use abi_stable::std_types::{RSlice, RStr, RVec};
use espalier_interface::Declaration;
use espalier_interface::abi::{ComponentTable, Opaque, PluginRoot, Reply, TableRef, descriptor};

use crate::fault;

/// Prefix of the returned bytes in the kind of a fault.
const REPLY: &str = "reply=";

const DECLARATION: Declaration = Declaration {
    name: "faulty-run",
    version: env!("CARGO_PKG_VERSION"),
    components: crate::COMPONENTS,
};
static DECLARED: Declaration = DECLARATION;

#[used]
#[unsafe(link_section = ".espalier")]
static DESCRIPTOR: [u8; descriptor::length(&DECLARATION)] = descriptor::bytes(&DECLARATION);

static HONEST: PluginRoot = PluginRoot::new(&DECLARED, &DESCRIPTOR);
static ROOT: PluginRoot = PluginRoot {
    query,
    ..PluginRoot::new(&DECLARED, &DESCRIPTOR)
};

#[unsafe(export_name = "espalier_root_faulty-run")]
extern "C" fn root() -> *const PluginRoot {
    &ROOT
}

fn valid_table() -> (TableRef, ComponentTable) {
    let found = (HONEST.query)("component".into(), 1);
    // SAFETY: the interface's own root made the pointer from a table of this name and version.
    (found, unsafe { *found.table.cast::<ComponentTable>() })
}

extern "C" fn query(name: RStr<'_>, version: u32) -> TableRef {
    if (name.as_str(), version) != ("component", 1) {
        return (HONEST.query)(name, version);
    }
    let (found, valid) = valid_table();
    let table = Box::leak(Box::new(ComponentTable { call, ..valid }));
    TableRef {
        table: std::ptr::from_ref(table).cast(),
        ..found
    }
}

extern "C" fn call(handle: Opaque, method: RStr<'_>, request: RSlice<'_, u8>) -> Reply<RVec<u8>> {
    match fault::of(method.as_str()) {
        Some(kind) if kind.starts_with(REPLY) => {
            Reply::ROk(kind.as_bytes()[REPLY.len()..].to_vec().into())
        }
        _ => (valid_table().1.call)(handle, method, request),
    }
}
