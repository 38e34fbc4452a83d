//! A working component of every role, until the fault that the environment selects.

mod adapter;
mod backend;
mod family;
mod fault;
mod quantizer;
mod root;
mod sharding;

use espalier_interface::Component;

const COMPONENTS: &[Component] = &[
    adapter::ADAPTER,
    backend::BACKEND,
    family::FAMILY,
    quantizer::QUANTIZER,
    sharding::SHARDING,
];
