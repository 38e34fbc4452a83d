//! A component of every role that works, until the fault that its options ask for.

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
