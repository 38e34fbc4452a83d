//! Checked options -> the components `int4`, `gptq`, `int4-clip` and `awq`.

use std::sync::Arc;

use espalier_interface::{
    Component, Instance, OptionKind, OptionSpec, Options, PluginError, Result, Role, Services,
};

use crate::awq::{Awq, Clipping};
use crate::awq_quantizer::AwqQuantizer;
use crate::awq_saved::METHOD;
use crate::calibrated_quantizer::{CalibratedQuantizer, Method};
use crate::files::Files;
use crate::gptq::{ColumnOrder, Gptq};
use crate::grid::{GridSpec, Symmetry};
use crate::grouping::{LARGEST_GROUP, LEAST_GROUP};
use crate::number::Number;
use crate::quantizer::Int4Quantizer;
use crate::saved::METHODS;

/// The least damping: less is lost in the rounding of the Gram matrix to f32.
const LEAST_DAMPING: f64 = 0.0001;

const BITS: OptionSpec = OptionSpec {
    name: "bits",
    kind: OptionKind::INTEGER,
    default: "4",
    range: "4 | 3 | 2",
    doc: "bits of a code; 3 take 3.2 on disk and in memory",
};

const GROUP_SIZE: OptionSpec = OptionSpec {
    name: "group_size",
    kind: OptionKind::INTEGER,
    default: "128",
    range: "8..=1048576",
    doc: "weights of a row that share a scale and a zero; a shorter row is one group",
};

const SYMMETRIC: OptionSpec = OptionSpec {
    name: "symmetric",
    kind: OptionKind::BOOL,
    default: "false",
    range: "",
    doc: "values at equal distances from 0; then no zeros are stored",
};

const SCALE_DTYPE: OptionSpec = OptionSpec {
    name: "scale_dtype",
    kind: OptionKind::TEXT,
    default: "\"f16\"",
    range: "f16 | bf16 | f32",
    doc: "in what scales are stored",
};

const FILES: OptionSpec = OptionSpec {
    name: "files",
    kind: OptionKind::TEXT,
    default: "\"gptq\"",
    range: "gptq | gptqmodel | gptq_v2 | awq",
    doc: "whose checkpoints `host quantize` writes",
};

/// The component `int4`.
pub const INT4: Component = Component {
    name: "int4",
    role: Role::QUANTIZER,
    doc: "uniform codes of 4 to 2 bits, a scale and a zero for each group of a row, rounded to nearest",
    options: &[BITS, GROUP_SIZE, SYMMETRIC, SCALE_DTYPE, FILES],
    capabilities: &[("quant_methods", METHODS)],
    create,
};

/// The component `gptq`.
pub const GPTQ: Component = Component {
    name: "gptq",
    role: Role::QUANTIZER,
    doc: "GPTQ: int4's format, with codes that make up for each other's errors on calibration rows",
    options: &[
        BITS,
        GROUP_SIZE,
        SYMMETRIC,
        SCALE_DTYPE,
        FILES,
        OptionSpec {
            name: "act_order",
            kind: OptionKind::BOOL,
            default: "true",
            range: "",
            doc: "code the columns with the largest inputs first, in the groups of the original weight",
        },
        OptionSpec {
            name: "damping",
            kind: OptionKind::NUMBER,
            default: "0.01",
            range: "0.0001..=1",
            doc: "what is added to the diagonal of the inputs' matrix, as a part of its mean",
        },
    ],
    capabilities: &[("quant_methods", METHODS)],
    create: create_gptq,
};

fn create_gptq(options: &Options, services: Arc<dyn Services>) -> Result<Instance> {
    let (grid, group_size) = layout(options)?;
    let damping = match options.number("damping")? {
        damping if (LEAST_DAMPING..=1.0).contains(&damping) => damping,
        other => return Err(expected("damping", "0.0001 to 1", other)),
    };
    let gptq = Gptq {
        grid,
        order: if options.flag("act_order")? {
            ColumnOrder::LargestInputsFirst
        } else {
            ColumnOrder::Stored
        },
        damping,
    };
    Ok(Instance::Quantizer(Box::new(CalibratedQuantizer {
        name: GPTQ.name,
        nearest: Int4Quantizer {
            grid,
            group_size,
            files: files(options)?,
            services,
        },
        method: Method::Gptq(gptq),
    })))
}

/// The component `int4-clip`.
pub const INT4_CLIP: Component = Component {
    name: "int4-clip",
    role: Role::QUANTIZER,
    doc: "int4's format, with the clipping of each group that changes outputs on calibration rows least",
    options: &[BITS, GROUP_SIZE, SYMMETRIC, SCALE_DTYPE, FILES],
    capabilities: &[("quant_methods", METHODS)],
    create: create_clip,
};

fn create_clip(options: &Options, services: Arc<dyn Services>) -> Result<Instance> {
    let (grid, group_size) = layout(options)?;
    Ok(Instance::Quantizer(Box::new(CalibratedQuantizer {
        name: INT4_CLIP.name,
        nearest: Int4Quantizer {
            grid,
            group_size,
            files: files(options)?,
            services,
        },
        method: Method::Clip,
    })))
}

/// The component `awq`.
pub const AWQ: Component = Component {
    name: crate::awq_quantizer::NAME,
    role: Role::QUANTIZER,
    doc: "AWQ: int4's format with a factor for each column, by which large inputs meet small errors",
    options: &[
        BITS,
        GROUP_SIZE,
        SYMMETRIC,
        SCALE_DTYPE,
        OptionSpec {
            name: "files",
            kind: OptionKind::TEXT,
            default: "\"own\"",
            range: "own | gptq | gptqmodel | gptq_v2 | awq",
            doc: "whose checkpoints `host quantize` writes; only our own hold factors, the others are refused",
        },
        OptionSpec {
            name: "clip",
            kind: OptionKind::BOOL,
            default: "true",
            range: "",
            doc: "clip the groups of rows whose outputs come nearer by it, as `int4-clip`",
        },
    ],
    capabilities: &[("quant_methods", METHOD)],
    create: create_awq,
};

fn create_awq(options: &Options, services: Arc<dyn Services>) -> Result<Instance> {
    let (grid, group_size) = layout(options)?;
    let name = options.text("files")?;
    let others_files = match (name.as_str(), Files::named(&name)) {
        ("own", _) => None,
        (_, Some(files)) => Some(files),
        (_, None) => {
            return Err(expected(
                "files",
                "own, gptq, gptqmodel, gptq_v2 or awq",
                name,
            ));
        }
    };
    Ok(Instance::Quantizer(Box::new(AwqQuantizer {
        nearest: Int4Quantizer {
            grid,
            group_size,
            files: Files::Gptq,
            services,
        },
        awq: Awq {
            grid,
            clipping: if options.flag("clip")? {
                Clipping::Searched
            } else {
                Clipping::Off
            },
        },
        others_files,
    })))
}

fn create(options: &Options, services: Arc<dyn Services>) -> Result<Instance> {
    let (grid, group_size) = layout(options)?;
    Ok(Instance::Quantizer(Box::new(Int4Quantizer {
        grid,
        group_size,
        files: files(options)?,
        services,
    })))
}

/// The options that decide the layout.
fn layout(options: &Options) -> Result<(GridSpec, u64)> {
    let bits = match options.count("bits")? {
        bits @ 2..=4 => bits as u32,
        other => return Err(expected("bits", "4, 3 or 2", other)),
    };
    let group_size = match options.count("group_size")? {
        size @ LEAST_GROUP..=LARGEST_GROUP => size,
        other => {
            let range = format!("{LEAST_GROUP} to {LARGEST_GROUP}");
            return Err(expected("group_size", &range, other));
        }
    };
    let name = options.text("scale_dtype")?;
    let number = Number::named(&name);
    let grid = GridSpec {
        bits,
        symmetry: if options.flag("symmetric")? {
            Symmetry::Symmetric
        } else {
            Symmetry::Asymmetric
        },
        number: number.ok_or_else(|| expected("scale_dtype", "f16, bf16 or f32", name))?,
    };
    Ok((grid, group_size))
}

/// Whose files weights are written to.
fn files(options: &Options) -> Result<Files> {
    let name = options.text("files")?;
    Files::named(&name).ok_or_else(|| expected("files", "gptq, gptqmodel, gptq_v2 or awq", name))
}

fn expected(option: &str, expected: &str, found: impl std::fmt::Display) -> PluginError {
    PluginError::invalid(format!(
        "option `{option}`: expected {expected}, found {found}"
    ))
}

#[cfg(test)]
mod tests;
