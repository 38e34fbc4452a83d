//! A weight and its quantizer -> packed segments that are known to decode to finite numbers.

use std::sync::{Mutex, PoisonError};

use espalier_interface::abi::call_site;
use espalier_interface::calibration::{CalibratedCall, StatisticValues};
use espalier_interface::format::{BlockMap, BlockValues, Codebook, Decoding, Format, Step};
use espalier_interface::{
    DType, ErrorCode, PluginError, Quantizer, Result as PluginResult, Services,
};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;

use crate::Error;
use crate::decoder::{WeightWindow, decode};
use crate::error::of_param;

/// Elements that a thread decodes at once, rows permitting.
const PART: u64 = 1 << 16;

/// Encodes `weight`, the finite numbers of `param`, into `segments`. Segments that decode to
/// numbers that are not finite are refused here, where the quantizer can still be named.
///
/// `weight` is overwritten where the quantizer alone can decode.
///
/// # Errors
/// Those of [`pack`] and [`check_decoded`].
pub fn encode(
    services: &dyn Services,
    (quantizer, param, format): (&Chosen<dyn Quantizer>, &str, &Format),
    weight: &mut [f32],
    segments: &mut [&mut [u8]],
    workspace: &mut [u8],
) -> Result<(), Error> {
    refuse_uncalibrated(quantizer, param, format.shape)?;
    pack(quantizer, param, format, weight, segments, workspace)?;
    let segments: Vec<&[u8]> = segments.iter().map(|segment| &**segment).collect();
    check_decoded(services, (quantizer, param, format), &segments, weight)
}

/// Encodes `weight` as [`encode`] does, and checks what its format describes.
///
/// # Errors
/// `Error::Plugin` for an error of the quantizer, and for a number that is not finite: of a block,
/// a codebook or an outlier.
pub fn pack(
    quantizer: &Chosen<dyn Quantizer>,
    param: &str,
    format: &Format,
    weight: &[f32],
    segments: &mut [&mut [u8]],
    workspace: &mut [u8],
) -> Result<(), Error> {
    let blame = |error: PluginError| quantizer.failed("encode", of_param(param, error));
    let plugin = quantizer.plugin.as_ref();
    let _about = call_site::about_text(param);
    plugin
        .encode(weight, format.shape, segments, workspace)
        .map_err(blame)?;
    let segments: Vec<&[u8]> = segments.iter().map(|segment| &**segment).collect();
    Ok(check_numbers(format, &segments).map_err(blame)?)
}

/// Refuses to pack the weight `param` without the statistics that its quantizer wants.
///
/// # Errors
/// [`Error::Usage`], naming both.
pub fn refuse_uncalibrated(
    quantizer: &Chosen<dyn Quantizer>,
    param: &str,
    shape: [u64; 2],
) -> Result<(), Error> {
    let site = param.strip_suffix(".weight").unwrap_or(param);
    if answer::calibration(quantizer, site, shape)?.is_none() {
        return Ok(());
    }
    Err(Error::Usage(UsageError {
        message: format!(
            "quantizer `{}` packs `{param}` with statistics of calibration rows, which this command \
             does not take",
            quantizer.identity.component
        ),
        next_step: "pack the base with `host quantize`, `train` or `compare`, or name a quantizer \
                    without calibration"
            .to_owned(),
    }))
}

/// What is known of the inputs of a weight.
pub struct InputStatistics<'a> {
    /// The site.
    pub site: &'a str,
    /// The number of inputs.
    pub tokens: u64,
    /// The statistics that the quantizer asked for.
    pub values: &'a [StatisticValues<'a>],
}

/// Encodes `weight` with statistics of its inputs, and checks what its format describes.
///
/// # Errors
/// As [`pack`].
pub fn pack_calibrated(
    (quantizer, param, format): (&Chosen<dyn Quantizer>, &str, &Format),
    weight: &[f32],
    statistics: &InputStatistics<'_>,
    segments: &mut [&mut [u8]],
    workspace: &mut [u8],
) -> Result<(), Error> {
    let blame = |error: PluginError| quantizer.failed("encode_calibrated", of_param(param, error));
    let _about = call_site::about_text(param);
    let call = CalibratedCall {
        site: statistics.site,
        weight,
        shape: format.shape,
        tokens: statistics.tokens,
        statistics: statistics.values,
        segments: &mut *segments,
        workspace,
    };
    quantizer.plugin.encode_calibrated(call).map_err(blame)?;
    let segments: Vec<&[u8]> = segments.iter().map(|segment| &**segment).collect();
    Ok(check_numbers(format, &segments).map_err(blame)?)
}

/// Decodes a weight into `scratch` as a check, where the format describes no decoding. `scratch`
/// has one number per element.
///
/// # Errors
/// As [`decode_all`].
pub fn check_decoded(
    services: &dyn Services,
    (quantizer, param, format): (&Chosen<dyn Quantizer>, &str, &Format),
    segments: &[&[u8]],
    scratch: &mut [f32],
) -> Result<(), Error> {
    match format.decoding {
        Decoding::Callback => decode_all(services, (quantizer, param, format), segments, scratch),
        _ => Ok(()),
    }
}

/// Decodes the weight `param`, `[N, M]`, whole into `out`, some rows at a time on each thread of
/// `services`.
///
/// # Errors
/// `Error::Plugin` for an error of the quantizer, and for an element that is not finite: of the
/// first rows that have one.
pub fn decode_all(
    services: &dyn Services,
    (quantizer, param, format): (&Chosen<dyn Quantizer>, &str, &Format),
    segments: &[&[u8]],
    out: &mut [f32],
) -> Result<(), Error> {
    let [rows, cols] = format.shape;
    let step = (PART / cols).max(1);
    let parts = out.chunks_mut((step * cols) as usize);
    // A lock for each part, which one call takes once.
    let parts: Vec<_> = parts.map(|out| Mutex::new((out, Ok(())))).collect();
    services.parallel_for(parts.len(), &|index| {
        let _about = call_site::about_text(param);
        let mut part = parts[index].lock().unwrap_or_else(PoisonError::into_inner);
        let (out, done) = &mut *part;
        let first = index as u64 * step;
        let window = WeightWindow {
            rows: first..(first + step).min(rows),
            cols: 0..cols,
        };
        let plugin = quantizer.plugin.as_ref();
        *done = decode(plugin, segments, format.shape, window, out);
    });
    for part in parts {
        let (_, done) = part.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.map_err(|error| quantizer.failed("decode", of_param(param, error)))?;
    }
    Ok(())
}

/// Checks that the numbers which a format describes are finite: those of blocks, of codebooks and
/// of outliers.
fn check_numbers(format: &Format, segments: &[&[u8]]) -> PluginResult<()> {
    for (name, blocks, values) in format.block_values() {
        check_blocks(format, segments, name, blocks, values)?;
    }
    let Decoding::Steps { source, steps } = &format.decoding else {
        return Ok(());
    };
    if let Some(vectors) = source.vectors() {
        for (codes, codebook) in vectors.stages() {
            // Those of a description are known to be finite.
            if let Codebook::Segment { segment, first } = codebook {
                check_stored(
                    format,
                    segments,
                    segment,
                    first + (vectors.len << codes.bits),
                )?;
            }
        }
    }
    for step in steps {
        if let Step::Outliers {
            size,
            count,
            values,
            ..
        } = step
        {
            let blocks = BlockMap::Flat { size: *size }.count(format.shape);
            check_stored(format, segments, *values, blocks * count)?;
        }
    }
    Ok(())
}

/// Checks the first `count` numbers of a segment.
fn check_stored(
    format: &Format,
    segments: &[&[u8]],
    segment: usize,
    count: u64,
) -> PluginResult<()> {
    let spec = &format.segments[segment];
    match not_finite(segments[segment], spec.dtype).filter(|&at| at < count) {
        None => Ok(()),
        Some(at) => {
            let name = &spec.name;
            let message =
                format!("number {at} of segment `{name}` is not finite, expected finite numbers");
            Err(PluginError::new(ErrorCode::PROTOCOL, message))
        }
    }
}

/// Checks the number of every block, and those that make it.
fn check_blocks(
    format: &Format,
    segments: &[&[u8]],
    name: &str,
    blocks: BlockMap,
    values: &BlockValues,
) -> PluginResult<()> {
    let count = blocks.count(format.shape);
    if let BlockValues::Product { factors, size, .. } = values {
        let groups = BlockMap::Flat { size: *size }.count([1, count]);
        check_codes(segments, name, groups, factors)?;
    }
    check_codes(segments, name, count, values.parts()[0])?;
    let value = |block| format.block_value(segments, values, block);
    let wrong = match values {
        BlockValues::Stored { segment } => {
            let dtype = format.segments[*segment].dtype;
            not_finite(segments[*segment], dtype).filter(|&block| block < count)
        }
        _ => (0..count).find(|&block| !value(block).is_finite()),
    };
    let Some(block) = wrong else {
        return Ok(());
    };
    let message = format!(
        "{name} of block {block} is {}, expected a finite number",
        value(block)
    );
    Err(PluginError::new(ErrorCode::PROTOCOL, message))
}

/// Checks that the codes of `count` blocks or groups, if the numbers have such, stand for numbers.
fn check_codes(
    segments: &[&[u8]],
    name: &str,
    count: u64,
    values: &BlockValues,
) -> PluginResult<()> {
    let BlockValues::Table {
        codes, not_numbers, ..
    } = values
    else {
        return Ok(());
    };
    let code = |block| codes.read(segments[codes.segment], block);
    let Some(block) = (0..count).find(|&block| not_numbers.contains(&code(block))) else {
        return Ok(());
    };
    let code = code(block);
    let message = format!("{name} of block {block} is code {code}, no number");
    Err(PluginError::new(ErrorCode::PROTOCOL, message))
}

/// Index of the first stored number that is not finite: its exponent has all bits set.
fn not_finite(bytes: &[u8], dtype: DType) -> Option<u64> {
    let at = match dtype {
        DType::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .position(|bytes| !f32::from_le_bytes(*bytes).is_finite()),
        _ => {
            let exponent = if dtype == DType::BF16 { 0x7f80 } else { 0x7c00 };
            let is = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes) & exponent == exponent;
            bytes.as_chunks::<2>().0.iter().position(is)
        }
    };
    at.map(|at| at as u64)
}

#[cfg(test)]
mod tests;
