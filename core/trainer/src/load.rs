//! Checkpoints, adapters and random numbers -> params in their place: one weight read, encoded and placed at a time.
#![allow(unsafe_code)]

use std::path::PathBuf;
use std::time::Instant;

use espalier_interface::format::Format;
use espalier_interface::graph::{Attributes, Dim};
use espalier_interface::{
    BufferRange, DType, Device, Init, KernelRequest, Launch, Operand, PluginError, Quantizer,
    Stream, WeightLayout,
};
use memmap2::MmapMut;

use crate::bytes::Bytes;
use crate::convert::SavedWeight;
use crate::encoded::{check_decoded, pack};
use crate::error::BackendCall;
use crate::executor::{Storage, write};
use crate::files::TensorStore;
use crate::packing::SavedParam;
use crate::params::Param;
use crate::select::Chosen;
use crate::{Error, answer, memory};

/// Elements read at once where no whole weight is needed.
const CHUNK_ELEMENTS: usize = 1 << 18;

/// Where a param's values come from.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// The tensor of the param's name, or of one of its aliases, in these files.
    Files(&'a TensorStore),
    /// Random numbers, as the param's `init` says.
    Random,
}

/// How a packed param comes by its segments.
#[derive(Clone, Copy)]
pub enum Packing<'a> {
    /// The dense weight is read and encoded.
    Encode(&'a Chosen<dyn Quantizer>),
    /// The files hold it packed.
    Saved(&'a SavedParam),
}

/// A weight that was just encoded, while it is at hand dense and packed.
pub struct EncodedWeight<'a> {
    /// The param.
    pub param: &'a Param,
    /// What packed it.
    pub quantizer: &'a Chosen<dyn Quantizer>,
    /// How it is packed.
    pub format: &'a Format,
    /// The numbers that were encoded, `[N, M]` row major.
    pub dense: &'a [f32],
    /// The packed weight, in the order of the format.
    pub segments: &'a [&'a [u8]],
}

/// Looks at weights while they are loaded.
pub trait Inspector {
    /// Takes note of a weight that was encoded.
    ///
    /// # Errors
    /// What keeps it from that: loading ends.
    fn inspect(&self, weight: &EncodedWeight<'_>) -> Result<(), Error>;
}

/// What loading did; a weight is encoded exactly once, and not at all where the files hold it packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Weights packed.
    pub encoded: u64,
    /// Params placed, packed ones included.
    pub placed: u64,
    /// Nanoseconds spent in encoders and in checking their scales.
    pub encode_nanos: u64,
}

/// Loads params into a run's storage.
pub struct Loader<'a> {
    device: &'a dyn Device,
    storage: &'a Storage,
    seed: u64,
    /// One weight in f32 and the encoder's workspace; grown when needed, given back with the loader.
    scratch: Scratch,
    workspace: Scratch,
    report: LoadReport,
    inspector: Option<&'a dyn Inspector>,
}

impl<'a> Loader<'a> {
    /// A loader; random params are drawn under `seed`.
    pub fn new(device: &'a dyn Device, storage: &'a Storage, seed: u64) -> Self {
        Loader {
            device,
            storage,
            seed,
            scratch: Scratch::default(),
            workspace: Scratch::default(),
            report: LoadReport::default(),
            inspector: None,
        }
    }

    /// Shows each weight that is encoded to `inspector`, where there is one.
    pub fn shown_to(self, inspector: Option<&'a dyn Inspector>) -> Self {
        Loader { inspector, ..self }
    }

    /// What has been done so far.
    pub fn report(&self) -> LoadReport {
        self.report
    }

    /// Loads param number `index`.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape or not finite; what the encoder or the backend reports.
    pub fn load(
        &mut self,
        index: usize,
        param: &Param,
        origin: Origin<'_>,
        packing: Option<Packing<'_>>,
    ) -> Result<(), Error> {
        match (&param.layout, origin) {
            (WeightLayout::Dense(dtype), Origin::Files(store)) => {
                self.dense_from_files(index, param, *dtype, store)?;
            }
            (WeightLayout::Dense(dtype), Origin::Random) => {
                self.random(index, param, self.storage.param(index)[0], *dtype)?;
            }
            (WeightLayout::Packed(format), origin) => {
                match (packing.expect("a packed param has a packing"), origin) {
                    (Packing::Saved(saved), Origin::Files(store)) => {
                        self.saved(index, store, SavedWeight::new(saved, format))?;
                    }
                    (Packing::Encode(quantizer), Origin::Files(store)) => {
                        self.packed(index, (param, format), store, quantizer)?;
                    }
                    (_, Origin::Random) => {
                        let what = format!(
                            "param `{}` is random and packed: train from scratch without a quantizer",
                            param.name
                        );
                        let error = PluginError::unsupported(what);
                        return Err(Error::plugin(&format.quantizer, "encode", error));
                    }
                }
            }
        }
        self.report.placed += 1;
        Ok(())
    }

    fn dense_from_files(
        &mut self,
        index: usize,
        param: &Param,
        dtype: DType,
        store: &TensorStore,
    ) -> Result<(), Error> {
        let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
        let range = self.storage.param(index)[0];
        let mut values = vec![0.0f32; CHUNK_ELEMENTS.min(param.elements() as usize)];
        let mut first = 0;
        while first < param.elements() {
            let count = values.len().min((param.elements() - first) as usize);
            let part = &mut values[..count];
            store.read_elements_f32(&name, first, part)?;
            if let Some(at) = part.iter().position(|x| !x.is_finite()) {
                return Err(not_finite(&name, store, first + at as u64));
            }
            let offset = range.offset + first * dtype.bytes();
            let bytes = count as u64 * dtype.bytes();
            write(
                self.device,
                part,
                dtype,
                BufferRange {
                    offset,
                    bytes,
                    ..range
                },
            )
            .during("upload")?;
            first += count as u64;
        }
        Ok(())
    }

    fn random(
        &mut self,
        index: usize,
        param: &Param,
        range: BufferRange,
        dtype: DType,
    ) -> Result<(), Error> {
        let attributes = match param.init {
            Init::Zeros => Attributes::new().with("kind", "zeros"),
            Init::Ones => Attributes::new().with("kind", "ones"),
            Init::Uniform { bound } => Attributes::new()
                .with("kind", "uniform")
                .with("bound", bound),
            Init::Normal { std } => Attributes::new().with("kind", "normal").with("std", std),
        };
        let request = KernelRequest {
            op: "init".to_owned(),
            version: 1,
            attributes,
            inputs: vec![],
            params: vec![],
            outputs: vec![Operand {
                shape: vec![Dim::Fixed(param.elements())],
                dtype,
            }],
            max_tokens: 0,
            max_sequences: 0,
        };
        let prepared = self.device.prepare(&request, &[]).during("prepare")?;
        let launched = self.device.launch(&Launch {
            kernel: prepared.kernel,
            stream: Stream(0),
            ranges: &[range],
            workspace: BufferRange { bytes: 0, ..range },
            tokens: 0,
            sequences: 0,
            scalars: &[
                f64::from(self.seed as u32),
                f64::from((self.seed >> 32) as u32),
                index as f64,
            ],
        });
        launched.during("launch")
    }

    /// Reads a weight whole, encodes it into its place and forgets it.
    fn packed(
        &mut self,
        index: usize,
        (param, format): (&Param, &Format),
        store: &TensorStore,
        quantizer: &Chosen<dyn Quantizer>,
    ) -> Result<(), Error> {
        let elements = param.elements() as usize;
        let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
        let weight = self.scratch.floats(elements)?;
        read_weight(store, &name, weight)?;
        let workspace = answer::encode_workspace(quantizer, format.shape)?;
        let workspace = self.workspace.bytes(workspace as usize)?;
        let ranges = self.storage.param(index);
        in_place(self.device, ranges, |segments| {
            let begin = Instant::now();
            pack(quantizer, &param.name, format, weight, segments, workspace)?;
            self.report.encode_nanos += begin.elapsed().as_nanos() as u64;
            let segments: Vec<&[u8]> = segments.iter().map(|segment| &**segment).collect();
            if let Some(inspector) = self.inspector {
                inspector.inspect(&EncodedWeight {
                    param,
                    quantizer,
                    format,
                    dense: weight,
                    segments: &segments,
                })?;
            }
            check_decoded(quantizer, &param.name, format, weight, &segments)
        })?;
        self.report.encoded += 1;
        Ok(())
    }

    /// Puts a weight that the files hold packed into its place, a part at a time.
    fn saved(
        &mut self,
        index: usize,
        store: &TensorStore,
        weight: SavedWeight<'_>,
    ) -> Result<(), Error> {
        let ranges = self.storage.param(index);
        weight.read(store, |segment, at, part| {
            let range = BufferRange {
                offset: ranges[segment].offset + at,
                bytes: part.len() as u64,
                ..ranges[segment]
            };
            self.device.upload(part, range, Stream(0)).during("upload")
        })
    }
}

/// Lets `fill` write straight into the device's memory where the host can write there, else into a copy that is uploaded.
fn in_place(
    device: &dyn Device,
    ranges: &[BufferRange],
    fill: impl FnOnce(&mut [&mut [u8]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let addresses: Option<Vec<_>> = ranges
        .iter()
        .map(|&range| device.host_address(range))
        .collect();
    if let Some(addresses) = addresses {
        let mut segments: Vec<&mut [u8]> = addresses
            .iter()
            .zip(ranges)
            // SAFETY: the ranges of a param are disjoint, allocated, and used by nobody else while it is loaded.
            .map(|(address, range)| unsafe {
                std::slice::from_raw_parts_mut(address.as_ptr(), range.bytes as usize)
            })
            .collect();
        return fill(&mut segments);
    }
    let mut copies: Vec<Vec<u8>> = ranges.iter().map(|r| vec![0; r.bytes as usize]).collect();
    let mut segments: Vec<&mut [u8]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
    fill(&mut segments)?;
    let mut copies = copies.iter().zip(ranges);
    copies
        .try_for_each(|(copy, &range)| device.upload(copy, range, Stream(0)))
        .during("upload")
}

/// The name under which the files hold a param of these names, its shape checked.
pub(crate) fn stored_name(
    store: &TensorStore,
    name: &str,
    aliases: &[String],
    shape: &[u64],
) -> Result<String, Error> {
    let mut names = std::iter::once(name).chain(aliases.iter().map(String::as_str));
    let found = names.find(|name| store.contains(name)).unwrap_or(name);
    store.entry_of_shape(found, shape)?;
    Ok(found.to_owned())
}

/// Reads all of tensor `name`, which must be finite.
pub(crate) fn read_weight(store: &TensorStore, name: &str, out: &mut [f32]) -> Result<(), Error> {
    store.read_tensor_f32(name, out)?;
    match out.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(not_finite(name, store, at as u64)),
        None => Ok(()),
    }
}

pub(crate) fn not_finite(name: &str, store: &TensorStore, index: u64) -> Error {
    let path = store
        .entry(name)
        .map(|entry| store.file_of(entry).to_owned());
    Error::Checkpoint {
        path: path.unwrap_or_else(|_| PathBuf::new()),
        message: format!("tensor `{name}`: element {index} is not a finite number"),
    }
}

/// The same failure, naming the param that it met.
pub(crate) fn of_param(param: &str, error: PluginError) -> PluginError {
    PluginError::new(error.code, format!("param `{param}`: {}", error.message))
}

/// Memory mapped for the length of loading, so that it goes back to the system whole.
#[derive(Default)]
pub(crate) struct Scratch(Option<MmapMut>);

impl Scratch {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&mut [u8], Error> {
        if self.0.as_ref().is_none_or(|map| map.len() < len) {
            self.0 = None;
            let map = MmapMut::map_anon(len.max(1)).map_err(|_| Error::OutOfMemory {
                kind: "host".to_owned(),
                needed: Bytes(len as u64),
                available: Bytes(memory::available_bytes().unwrap_or(0)),
            })?;
            self.0 = Some(map);
        }
        Ok(&mut self.0.as_mut().expect("mapped above")[..len])
    }

    pub(crate) fn floats(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let bytes = self.bytes(len * 4)?;
        // SAFETY: a mapping is page-aligned, zeroed or written as f32, and every bit pattern is an f32.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
    }
}
