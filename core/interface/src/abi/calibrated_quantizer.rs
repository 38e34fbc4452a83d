//! The table of quantizers that pack with statistics of a weight's inputs.

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RSliceMut, RStr};

use super::Opaque;
use super::bytes_mut::BytesMut;
use super::component::{InstanceHandle, instance};
use super::reply::{Reply, from_bytes, guard, plain, to_bytes};
use crate::calibration::{CalibratedCall, Statistic, StatisticNumbers, StatisticValues};
use crate::declaration::Instance;
use crate::{DType, PluginError, Result};

/// Version of [`CalibratedQuantizerTable`].
pub const CALIBRATED_QUANTIZER_VERSION: u32 = 1;

/// Numbers of a dtype that comes with them.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
struct Numbers {
    start: *const u8,
    /// Number of elements.
    len: usize,
}

/// The arguments of [`crate::Quantizer::encode_calibrated`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi)]
pub struct EncodeCalibratedArgs<'a> {
    site: RStr<'a>,
    weight: RSlice<'a, f32>,
    rows: u64,
    cols: u64,
    tokens: u64,
    /// The statistics as JSON: a list.
    statistics: RSlice<'a, u8>,
    /// As many as statistics, each of the dtype of its statistic.
    numbers: RSlice<'a, Numbers>,
    segments: RSlice<'a, BytesMut>,
    workspace: RSliceMut<'a, u8>,
}

/// The functions of a quantizer that packs with statistics of a weight's inputs.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct CalibratedQuantizerTable {
    /// [`crate::Quantizer::encode_calibrated`].
    pub encode_calibrated: extern "C" fn(Opaque, EncodeCalibratedArgs<'_>) -> Reply<()>,
}

pub(super) static CALIBRATED_QUANTIZER_TABLE: CalibratedQuantizerTable =
    CalibratedQuantizerTable { encode_calibrated };

extern "C" fn encode_calibrated(handle: Opaque, call: EncodeCalibratedArgs<'_>) -> Reply<()> {
    guard(|| {
        let Instance::Quantizer(quantizer) = instance(handle) else {
            return Err(PluginError::unsupported(
                "this component is not a quantizer",
            ));
        };
        let statistics: Vec<Statistic> = from_bytes(call.statistics.as_slice())?;
        let pairs = statistics.into_iter().zip(call.numbers.iter());
        let values = pairs.map(|(statistic, numbers)| values(statistic, numbers));
        let values: Vec<StatisticValues<'_>> = values.collect::<Result<_>>()?;
        let mut segments: Vec<&mut [u8]> = call
            .segments
            .iter()
            // SAFETY: the host passes disjoint segments that it holds mutably for the length of the
            // call.
            .map(|bytes| unsafe { std::slice::from_raw_parts_mut(bytes.start, bytes.len) })
            .collect();
        let mut workspace = call.workspace;
        quantizer.encode_calibrated(CalibratedCall {
            site: call.site.as_str(),
            weight: call.weight.as_slice(),
            shape: [call.rows, call.cols],
            tokens: call.tokens,
            statistics: &values,
            segments: &mut segments,
            workspace: workspace.as_mut_slice(),
        })
    })
}

fn values<'a>(statistic: Statistic, numbers: &'a Numbers) -> Result<StatisticValues<'a>> {
    let Numbers { start, len } = *numbers;
    let numbers = match statistic.dtype() {
        // SAFETY: the host passes `len` aligned numbers of the statistic's dtype, which it holds
        // for the length of the call.
        DType::F32 => unsafe {
            StatisticNumbers::F32(std::slice::from_raw_parts(start.cast(), len))
        },
        // SAFETY: as above.
        DType::F64 => unsafe {
            StatisticNumbers::F64(std::slice::from_raw_parts(start.cast(), len))
        },
        other => {
            return Err(PluginError::invalid(format!(
                "a statistic in {other}, expected f32 or f64"
            )));
        }
    };
    Ok(StatisticValues { statistic, numbers })
}

/// [`crate::Quantizer::encode_calibrated`] on the host's side.
pub(super) fn call(
    handle: &InstanceHandle,
    table: Option<&CalibratedQuantizerTable>,
    call: CalibratedCall<'_, '_>,
) -> Result<()> {
    let Some(table) = table else {
        return Err(PluginError::unsupported(
            "it was built for an interface before 0.10, in which no quantizer is calibrated",
        ));
    };
    let statistics: Vec<Statistic> = call.statistics.iter().map(|one| one.statistic).collect();
    let statistics = to_bytes(&statistics)?;
    let mut numbers = Vec::with_capacity(call.statistics.len());
    for one in call.statistics {
        let (dtype, start, len) = match one.numbers {
            StatisticNumbers::F32(values) => (DType::F32, values.as_ptr().cast(), values.len()),
            StatisticNumbers::F64(values) => (DType::F64, values.as_ptr().cast(), values.len()),
        };
        // The other side reads the numbers in the dtype that the statistic states.
        if dtype != one.statistic.dtype() {
            return Err(PluginError::invalid(format!(
                "numbers in {dtype} of a statistic in {}",
                one.statistic.dtype()
            )));
        }
        numbers.push(Numbers { start, len });
    }
    let segments = call.segments.iter_mut().map(|bytes| BytesMut {
        start: bytes.as_mut_ptr(),
        len: bytes.len(),
    });
    let segments: Vec<BytesMut> = segments.collect();
    let args = EncodeCalibratedArgs {
        site: call.site.into(),
        weight: call.weight.into(),
        rows: call.shape[0],
        cols: call.shape[1],
        tokens: call.tokens,
        statistics: statistics.as_rslice(),
        numbers: numbers.as_slice().into(),
        segments: segments.as_slice().into(),
        workspace: call.workspace.into(),
    };
    let _inside = handle.site.enter("encode_calibrated");
    plain((table.encode_calibrated)(handle.raw, args))
}
