//! The quantizer's table: encoding and decoding of bytes, besides the methods of every component.

use std::ops::Range;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RSliceMut};
use serde_json::Value as Json;

use super::Opaque;
use super::bytes_mut::BytesMut;
use super::calibrated_quantizer::{self, CalibratedQuantizerTable};
use super::component::{InstanceHandle, instance};
use super::reply::{Reply, guard, plain};
use crate::calibration::{CalibratedCall, Calibration};
use crate::declaration::Instance;
use crate::format::{DeviceCode, Format};
use crate::role::Quantizer;
use crate::saved_form::{SavedDescription, SavedForm, SavedModel};
use crate::{DType, ErrorCode, Options, PluginError, Result};

/// Version of [`QuantizerTable`].
pub const QUANTIZER_VERSION: u32 = 1;

/// The arguments of [`Quantizer::encode`].
#[repr(C)]
#[derive(StableAbi)]
pub struct EncodeCall<'a> {
    weight: RSlice<'a, f32>,
    rows: u64,
    cols: u64,
    segments: RSlice<'a, BytesMut>,
    workspace: RSliceMut<'a, u8>,
}

/// The arguments of [`Quantizer::decode`].
#[repr(C)]
#[derive(StableAbi)]
pub struct DecodeCall<'a> {
    segments: RSlice<'a, Bytes>,
    shape_rows: u64,
    shape_cols: u64,
    row_begin: u64,
    row_end: u64,
    col_begin: u64,
    col_end: u64,
    out: RSliceMut<'a, f32>,
}

/// A read-only byte slice.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
struct Bytes {
    start: *const u8,
    len: usize,
}

/// The functions of a quantizer besides its methods.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct QuantizerTable {
    /// [`Quantizer::encode`].
    pub encode: extern "C" fn(Opaque, EncodeCall<'_>) -> Reply<()>,
    /// [`Quantizer::decode`].
    pub decode: extern "C" fn(Opaque, DecodeCall<'_>) -> Reply<()>,
}

pub(super) static QUANTIZER_TABLE: QuantizerTable = QuantizerTable { encode, decode };

fn quantizer<'a>(handle: Opaque) -> Result<&'a dyn Quantizer> {
    match instance(handle) {
        Instance::Quantizer(quantizer) => Ok(quantizer.as_ref()),
        _ => Err(PluginError::unsupported(
            "this component is not a quantizer",
        )),
    }
}

extern "C" fn encode(handle: Opaque, call: EncodeCall<'_>) -> Reply<()> {
    guard(|| {
        let mut segments: Vec<&mut [u8]> = call
            .segments
            .iter()
            // SAFETY: the host passes disjoint segments that it holds mutably for the length of the
            // call.
            .map(|bytes| unsafe { std::slice::from_raw_parts_mut(bytes.start, bytes.len) })
            .collect();
        let mut workspace = call.workspace;
        let shape = [call.rows, call.cols];
        let workspace = workspace.as_mut_slice();
        quantizer(handle)?.encode(call.weight.as_slice(), shape, &mut segments, workspace)
    })
}

extern "C" fn decode(handle: Opaque, call: DecodeCall<'_>) -> Reply<()> {
    guard(|| {
        let segments: Vec<&[u8]> = call
            .segments
            .iter()
            // SAFETY: the host holds the segments for the length of the call.
            .map(|bytes| unsafe { std::slice::from_raw_parts(bytes.start, bytes.len) })
            .collect();
        let mut out = call.out;
        quantizer(handle)?.decode(
            &segments,
            [call.shape_rows, call.shape_cols],
            call.row_begin..call.row_end,
            call.col_begin..call.col_end,
            out.as_mut_slice(),
        )
    })
}

/// A quantizer on the plugin's side of the boundary.
pub struct QuantizerProxy {
    handle: InstanceHandle,
    table: QuantizerTable,
    calibrated: Option<CalibratedQuantizerTable>,
}

impl QuantizerProxy {
    /// A quantizer made of an instance and its tables; `calibrated` where its plugin has it.
    pub fn new(
        handle: InstanceHandle,
        table: QuantizerTable,
        calibrated: Option<CalibratedQuantizerTable>,
    ) -> Self {
        QuantizerProxy {
            handle,
            table,
            calibrated,
        }
    }
}

impl Quantizer for QuantizerProxy {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        self.handle.call("format", &shape)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        let segments: Vec<BytesMut> = segments
            .iter_mut()
            .map(|bytes| BytesMut {
                start: bytes.as_mut_ptr(),
                len: bytes.len(),
            })
            .collect();
        let call = EncodeCall {
            weight: weight.into(),
            rows: shape[0],
            cols: shape[1],
            segments: segments.as_slice().into(),
            workspace: workspace.into(),
        };
        let _inside = self.handle.site.enter("encode");
        plain((self.table.encode)(self.handle.raw, call))
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        self.handle.call("encode_workspace", &shape)
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        let segments: Vec<Bytes> = segments
            .iter()
            .map(|bytes| Bytes {
                start: bytes.as_ptr(),
                len: bytes.len(),
            })
            .collect();
        let call = DecodeCall {
            segments: segments.as_slice().into(),
            shape_rows: shape[0],
            shape_cols: shape[1],
            row_begin: rows.start,
            row_end: rows.end,
            col_begin: cols.start,
            col_end: cols.end,
            out: out.into(),
        };
        let _inside = self.handle.site.enter("decode");
        plain((self.table.decode)(self.handle.raw, call))
    }

    fn calibration(&self, site: &str, shape: [u64; 2]) -> Result<Option<Calibration>> {
        match self.handle.call("calibration", &(site, shape)) {
            // Built for an interface before 0.10.
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(None),
            answer => answer,
        }
    }

    fn calibrated_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        self.handle.call("calibrated_workspace", &shape)
    }

    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<()> {
        calibrated_quantizer::call(&self.handle, self.calibrated.as_ref(), call)
    }

    fn device_code(&self) -> Result<Option<DeviceCode>> {
        match self.handle.call("device_code", &()) {
            // Built for an interface before 0.9.
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(None),
            answer => answer,
        }
    }

    fn saved_form(&self, shape: [u64; 2], dtype: DType) -> Result<SavedForm> {
        self.handle.call("saved_form", &(shape, dtype))
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        self.handle.call("quantization_config", model)
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        self.handle.call("options_from_saved", saved)
    }
}
