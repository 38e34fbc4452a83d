//! Checked options -> the components `nf4`, `fp4` and `int8`.

use std::sync::Arc;

use espalier_interface::{
    Component, Instance, OptionKind, OptionSpec, Options, PluginError, Result, Role, Services,
};

use crate::codebook::{self, Codebook};
use crate::eight_bit_quantizer::EightBitQuantizer;
use crate::four_bit::FourBit;
use crate::four_bit_quantizer::{AbsmaxStore, FourBitQuantizer};

const FOUR_BIT_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "block_size",
        kind: OptionKind::INTEGER,
        default: "64",
        range: "32..=4096",
        doc: "weights that share an absmax; a power of two",
    },
    OptionSpec {
        name: "double_quant",
        kind: OptionKind::BOOL,
        default: "true",
        range: "",
        doc: "quantize the absmax to 8 bits again: 4.13, not 4.5, bits a weight at block_size 64",
    },
];

/// Keys of a `quantization_config` that the host reads before it asks.
const QUANT_METHODS: &[(&str, &str)] = &[("quant_methods", "bitsandbytes")];

/// The component `nf4`.
pub const NF4: Component = Component {
    name: "nf4",
    role: Role::QUANTIZER,
    doc: "4-bit NormalFloat in blocks, bit for bit as bitsandbytes",
    options: FOUR_BIT_OPTIONS,
    capabilities: QUANT_METHODS,
    create: |options, services| four_bit("nf4", &codebook::NF4, options, services),
};

/// The component `fp4`.
pub const FP4: Component = Component {
    name: "fp4",
    role: Role::QUANTIZER,
    doc: "4-bit float in blocks, bit for bit as bitsandbytes",
    options: FOUR_BIT_OPTIONS,
    capabilities: QUANT_METHODS,
    create: |options, services| four_bit("fp4", &codebook::FP4, options, services),
};

/// The component `int8`.
pub const INT8: Component = Component {
    name: "int8",
    role: Role::QUANTIZER,
    doc: "8-bit signed dynamic map in blocks, bit for bit as bitsandbytes",
    options: &[OptionSpec {
        name: "block_size",
        kind: OptionKind::INTEGER,
        default: "4096", // bitsandbytes functional.py, quantize_blockwise
        range: "64..=4096",
        doc: "weights that share an absmax; a power of two",
    }],
    capabilities: &[],
    create: |options, services| {
        Ok(Instance::Quantizer(Box::new(EightBitQuantizer {
            block_size: block_size(options, 64)?,
            services,
        })))
    },
};

fn four_bit(
    name: &'static str,
    codebook: &'static Codebook,
    options: &Options,
    services: Arc<dyn Services>,
) -> Result<Instance> {
    Ok(Instance::Quantizer(Box::new(FourBitQuantizer {
        name,
        encoder: FourBit {
            codebook,
            block_size: block_size(options, 32)?,
        },
        absmax: if options.flag("double_quant")? {
            AbsmaxStore::Nested
        } else {
            AbsmaxStore::Plain
        },
        services,
    })))
}

/// The option `block_size`: a power of two from `least` to 4096, the sizes that bitsandbytes takes.
fn block_size(options: &Options, least: u64) -> Result<usize> {
    let size = options.count("block_size")?;
    if (least..=4096).contains(&size) && size.is_power_of_two() {
        return Ok(size as usize);
    }
    Err(PluginError::invalid(format!(
        "option `block_size`: expected a power of two from {least} to 4096, found {size}"
    )))
}

#[cfg(test)]
mod tests;
