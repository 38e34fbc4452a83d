//! Checked options -> the component `hqq`.

use std::sync::Arc;

use espalier_interface::{
    Component, DType, Instance, OptionKind, OptionSpec, Options, PluginError, Result, Role,
    Services,
};

use crate::grouping::Axis;
use crate::meta::MetaStore;
use crate::profile::Profile;
use crate::quantizer::{HqqQuantizer, Zeros};
use crate::saved::METHOD;

/// The component `hqq`.
pub const HQQ: Component = Component {
    name: "hqq",
    role: Role::QUANTIZER,
    doc: "half-quadratic quantization: 8 to 1 bits, a scale and a zero a group, as the hqq library",
    options: &[
        OptionSpec {
            name: "bits",
            kind: OptionKind::INTEGER,
            default: "4",
            range: "8 | 6 | 5 | 4 | 3 | 2 | 1",
            doc: "bits of a code; 6 and 5 take 8 on disk and in memory, as in hqq, 3 take 3.2",
        },
        OptionSpec {
            name: "group_size",
            kind: OptionKind::INTEGER,
            default: "64",
            range: "8..=1048576",
            doc: "weights that share a scale and a zero; a multiple of 8 that divides the number of weights",
        },
        OptionSpec {
            name: "axis",
            kind: OptionKind::INTEGER,
            default: "1",
            range: "0 | 1",
            doc: "1: a group's weights follow one another; 0: they are spread over the whole weight",
        },
        OptionSpec {
            name: "profile",
            kind: OptionKind::TEXT,
            default: "\"0.2.8\"",
            range: "0.2.8 | 2024-03",
            doc: "which hqq to follow; 2024-03: beta grows by kappa, zeros are quantized to 8 bits",
        },
        OptionSpec {
            name: "optimize",
            kind: OptionKind::BOOL,
            default: "true",
            range: "",
            doc: "let the half-quadratic solver move the zeros",
        },
        OptionSpec {
            name: "meta",
            kind: OptionKind::TEXT,
            default: "\"auto\"",
            range: "auto | f32 | f16 | bf16 | zero-8bit | 8bit",
            doc: "how scales and zeros are stored; auto: f32, and zero-8bit in profile 2024-03, which alone has 8 bits",
        },
    ],
    capabilities: &[("quant_methods", METHOD)],
    create,
};

fn create(options: &Options, services: Arc<dyn Services>) -> Result<Instance> {
    let profile = Profile::named(&options.text("profile")?)?;
    Ok(Instance::Quantizer(Box::new(HqqQuantizer {
        bits: bits(options, profile)?,
        group_size: group_size(options)?,
        axis: match options.count("axis")? {
            0 => Axis::Strided,
            1 => Axis::Consecutive,
            other => return Err(expected("axis", "0 or 1", other)),
        },
        profile,
        zeros: if options.flag("optimize")? {
            Zeros::Solved
        } else {
            Zeros::Kept
        },
        meta: meta(options, profile)?,
        services,
    })))
}

fn bits(options: &Options, profile: Profile) -> Result<u32> {
    let all = [8, 6, 5, 4, 3, 2, 1];
    match options.number("bits")? {
        1.58 => Err(PluginError::invalid(
            "option `bits`: ternary weights (1.58 bits) are not offered: hqq itself packs them into 2 bits; set bits = 2",
        )),
        found if !all.map(f64::from).contains(&found) => {
            Err(expected("bits", "8, 6, 5, 4, 3, 2 or 1", found))
        }
        6.0 | 5.0 if profile == Profile::March2024 => Err(PluginError::invalid(format!(
            "option `bits`: profile {} has 8, 4, 3, 2 and 1; set profile = \"{}\"",
            profile.name(),
            Profile::V0_2_8.name()
        ))),
        found => Ok(found as u32),
    }
}

fn group_size(options: &Options) -> Result<u64> {
    match options.count("group_size")? {
        size if size >= 8 && size.is_multiple_of(8) => Ok(size),
        size => Err(expected("group_size", "a multiple of 8", size)),
    }
}

fn meta(options: &Options, profile: Profile) -> Result<MetaStore> {
    let name = options.text("meta")?;
    if name == "auto" {
        return Ok(match profile {
            Profile::V0_2_8 => MetaStore::Plain(DType::F32),
            Profile::March2024 => MetaStore::ZeroEightBit,
        });
    }
    match MetaStore::named(&name) {
        Some(store) if store.is_quantized() && profile == Profile::V0_2_8 => {
            Err(PluginError::invalid(format!(
                "option `meta`: hqq gave up \"{name}\" before 0.2.8; set profile = \"{}\", or meta = \"bf16\" for less memory",
                Profile::March2024.name()
            )))
        }
        Some(store) => Ok(store),
        None => Err(expected(
            "meta",
            "auto, f32, f16, bf16, zero-8bit or 8bit",
            name,
        )),
    }
}

fn expected(option: &str, expected: &str, found: impl std::fmt::Display) -> PluginError {
    PluginError::invalid(format!(
        "option `{option}`: expected {expected}, found {found}"
    ))
}

#[cfg(test)]
mod tests;
