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

/// What the host reads of a `quantization_config` before it asks.
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
mod tests {
    use super::*;
    use espalier_interface::Serial;
    use serde_json::json;

    fn create(component: &Component, options: serde_json::Value) -> Result<Instance> {
        let options = serde_json::from_value(options).expect("an object");
        (component.create)(&options, Arc::new(Serial))
    }

    #[test]
    fn only_powers_of_two_in_range_are_block_sizes() {
        for size in [32, 64, 4096] {
            create(&NF4, json!({ "block_size": size, "double_quant": true })).expect("a size");
        }
        for (component, size) in [(&NF4, 16), (&FP4, 96), (&NF4, 8192), (&INT8, 32)] {
            let options = json!({ "block_size": size, "double_quant": false });
            let Err(error) = create(component, options) else {
                panic!("{} takes block size {size}", component.name);
            };
            assert!(error.message.contains(&format!("found {size}")), "{error}");
        }
    }

    #[test]
    fn defaults_are_accepted() {
        for component in [NF4, FP4, INT8] {
            let options = component.options.iter().map(|spec| {
                let default = serde_json::from_str(spec.default).expect("JSON text");
                (spec.name.to_owned(), default)
            });
            let options = Options(options.collect());
            (component.create)(&options, Arc::new(Serial)).expect("its own defaults");
        }
    }

    #[test]
    fn sizes_are_those_of_the_options() {
        let bits = |component: &Component, options| {
            let Ok(Instance::Quantizer(quantizer)) = create(component, options) else {
                panic!("{} is a quantizer", component.name);
            };
            let format = quantizer.format([1024, 1024]).expect("it has elements");
            format.validate().expect("it fits itself");
            8.0 * format.bytes() as f64 / f64::from(1024 * 1024)
        };
        let nested = bits(&NF4, json!({ "block_size": 64, "double_quant": true }));
        assert!((nested - (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0))).abs() < 1e-4);
        let plain = bits(&FP4, json!({ "block_size": 64, "double_quant": false }));
        assert_eq!(plain, 4.5);
        assert_eq!(
            bits(&INT8, json!({ "block_size": 4096 })),
            8.0 + 32.0 / 4096.0
        );
    }
}
