//! A 4-bit quantizer with blocks and nested scales, for the tests of the conformance kit. It is
//! correct as `sound`, and has many variants with one planted bug each.

mod bug;
mod decode;
mod encode;
mod nested;
mod quantizer;
mod saved;

use std::sync::Arc;

use espalier_interface::{
    Component, Instance, OptionKind, OptionSpec, Options, PluginError, Result, Role, Services,
};

use bug::Bug;
use quantizer::Planted;

const BLOCK_SIZE: OptionSpec = OptionSpec {
    name: "block_size",
    kind: OptionKind::INTEGER,
    default: "64",
    range: "32..=1024, power of two",
    doc: "weights that share a scale",
};

/// As above, except its range: the host accepts every whole number.
const ANY_BLOCK_SIZE: OptionSpec = OptionSpec {
    range: "",
    ..BLOCK_SIZE
};

const DOUBLE_QUANT: OptionSpec = OptionSpec {
    name: "double_quant",
    kind: OptionKind::BOOL,
    default: "true",
    range: "",
    doc: "store the scales in 8 bits",
};

fn create(
    name: &'static str,
    bug: Option<Bug>,
    options: &Options,
    services: Arc<dyn Services>,
) -> Result<Instance> {
    let block_size = options.count("block_size")?;
    if block_size == 0 && bug != Some(Bug::Trusting) {
        return Err(PluginError::invalid(
            "option `block_size`: expected at least 32, found 0",
        ));
    }
    if bug == Some(Bug::GlobalOptions) {
        quantizer::set_global_block_size(block_size);
    }
    Ok(Instance::Quantizer(Box::new(Planted {
        name,
        bug,
        block_size,
        double_quant: options.flag("double_quant")?,
        services,
    })))
}

macro_rules! components {
    ($($name:literal $bug:expr, $block_size:expr;)*) => {
        &[$(Component {
            name: $name,
            role: Role::QUANTIZER,
            doc: "4 bits in blocks, for tests of the conformance kit",
            options: &[$block_size, DOUBLE_QUANT],
            capabilities: &[("quant_methods", "planted")],
            create: |options, services| create($name, $bug, options, services),
        }),*]
    };
}

const COMPONENTS: &[Component] = components! {
    "sound" None, BLOCK_SIZE;
    "swapped-nibbles" Some(Bug::SwappedNibbles), BLOCK_SIZE;
    "shifted-nibbles" Some(Bug::ShiftedNibbles), BLOCK_SIZE;
    "shifted-block" Some(Bug::ShiftedBlock), BLOCK_SIZE;
    "nested-not-applied" Some(Bug::NestedNotApplied), BLOCK_SIZE;
    "shared-scratch" Some(Bug::SharedScratch), BLOCK_SIZE;
    "counts-calls" Some(Bug::CountsCalls), BLOCK_SIZE;
    "reads-addresses" Some(Bug::ReadsAddresses), BLOCK_SIZE;
    "counts-threads" Some(Bug::CountsThreads), BLOCK_SIZE;
    "workspace-overrun" Some(Bug::WorkspaceOverrun), BLOCK_SIZE;
    "other-table" Some(Bug::OtherTable), BLOCK_SIZE;
    "column-offset" Some(Bug::ColumnOffset), BLOCK_SIZE;
    "deaf" Some(Bug::Deaf), BLOCK_SIZE;
    "trusting" Some(Bug::Trusting), ANY_BLOCK_SIZE;
    "lost-tail" Some(Bug::LostTail), BLOCK_SIZE;
    "stale-byte" Some(Bug::StaleByte), BLOCK_SIZE;
    "single-row" Some(Bug::SingleRow), BLOCK_SIZE;
    "global-options" Some(Bug::GlobalOptions), BLOCK_SIZE;
    "nan-zeros" Some(Bug::NanZeros), BLOCK_SIZE;
    "takes-nan" Some(Bug::TakesNan), BLOCK_SIZE;
    "drops-segment" Some(Bug::DropsSegment), BLOCK_SIZE;
};

espalier_interface::declare_plugin! { name: "planted", components: COMPONENTS }
