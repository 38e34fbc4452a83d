//! The components `mxfp4` and `nvfp4`, which have no options.

use espalier_interface::{Component, Instance, Role};

use crate::quantizer::{ScaledFloat, Scales};

/// Keys of a `quantization_config` that the host reads before it asks.
const QUANT_METHODS: &[(&str, &str)] = &[("quant_methods", crate::saved::METHOD)];

/// The component `mxfp4`.
pub const MXFP4: Component = Component {
    name: "mxfp4",
    role: Role::QUANTIZER,
    doc: "4-bit floats (E2M1) in blocks of 32 with scales that are powers of two (E8M0), bit for bit as compressed-tensors",
    options: &[],
    capabilities: QUANT_METHODS,
    create: |_, services| {
        Ok(Instance::Quantizer(Box::new(ScaledFloat {
            scales: Scales::E8M0,
            services,
        })))
    },
};

/// The component `nvfp4`.
pub const NVFP4: Component = Component {
    name: "nvfp4",
    role: Role::QUANTIZER,
    doc: "4-bit floats (E2M1) in blocks of 16 with scales in E4M3 over one number of the weight, bit for bit as compressed-tensors",
    options: &[],
    capabilities: QUANT_METHODS,
    create: |_, services| {
        Ok(Instance::Quantizer(Box::new(ScaledFloat {
            scales: Scales::E4M3,
            services,
        })))
    },
};
