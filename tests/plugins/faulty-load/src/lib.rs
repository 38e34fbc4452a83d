//! A plugin that fails where its bytes specify: when it is opened, asked for its root, created, or
//! called.

mod adapter;
mod backend;
mod fault;
mod quantizer;

use espalier_interface::Declaration;
use espalier_interface::abi::{PluginRoot, descriptor};

use fault::FaultPoint;

const DECLARATION: Declaration = Declaration {
    name: "faulty",
    version: env!("CARGO_PKG_VERSION"),
    components: &[quantizer::COMPONENT, adapter::COMPONENT, backend::COMPONENT],
};
static DECLARED: Declaration = DECLARATION;

#[used]
#[unsafe(link_section = ".espalier")]
static DESCRIPTOR: [u8; descriptor::length(&DECLARATION)] = descriptor::bytes(&DECLARATION);

static ROOT: PluginRoot = PluginRoot::new(&DECLARED, &DESCRIPTOR);

/// The expansion of `declare_plugin!`, with a fault.
#[unsafe(no_mangle)]
extern "C" fn espalier_root_faulty() -> *const PluginRoot {
    fault::at(FaultPoint::ROOT);
    &ROOT
}

extern "C" fn opened() {
    fault::at(FaultPoint::OPEN);
}

#[used]
#[unsafe(link_section = ".init_array")]
static OPENED: extern "C" fn() = opened;
