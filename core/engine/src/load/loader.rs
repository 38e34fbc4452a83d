//! A param's origin -> its bytes in device memory. Weights are read, encoded and placed one at a
//! time.

mod packed;

use std::collections::HashMap;

use espalier_compile::params::Param;
use espalier_interface::abi::call_site;
use espalier_interface::graph::Attributes;
use espalier_interface::{
    BufferRange, DType, Device, Init, KernelRequest, Launch, Operand, Services, Stream,
    WeightLayout, op,
};
use espalier_numeric::{Drawn, first_not_finite};
use espalier_system::files::TensorStore;

use super::decode_check::DecodeChecks;
use super::{
    CalibratedWeights, DrawnBy, Initialise, Inspector, KeptWeights, LoadReport, Origin,
    SavedWeight, Scratch, SegmentSource, WeightCache, not_finite, stored_name,
};
use crate::Error;
use crate::error::BackendCall;
use crate::executor::write;

/// Elements read at once where no whole weight is needed.
const CHUNK_ELEMENTS: usize = 1 << 18;

/// Elements that all threads draw together before they are written, a multiple of 4.
const DRAWN_ELEMENTS: u64 = 1 << 22;

/// Loads params into their ranges of a device's memory.
pub struct Loader<'a> {
    pub(super) device: &'a dyn Device,
    /// The threads that draw the weights to be encoded, and decode them as a check.
    pub(super) services: &'a dyn Services,
    drawn_by: DrawnBy,
    pub(super) seed: u64,
    /// One weight in f32 and the encoder's workspace; grown when needed, freed with the loader.
    scratch: Scratch,
    workspace: Scratch,
    pub(super) report: LoadReport,
    decode_checks: DecodeChecks,
    inspector: Option<&'a dyn Inspector>,
    kept: Option<&'a KeptWeights>,
    calibrated: Option<&'a CalibratedWeights>,
    cache: Option<&'a WeightCache>,
    initialise: Option<Initialise<'a>>,
    /// Initial values that wait for their params to be loaded, by the params' index.
    initial: HashMap<usize, Vec<f32>>,
}

impl<'a> Loader<'a> {
    /// A loader; random params are drawn under `seed`, those to be encoded on the threads of
    /// `services`.
    pub fn new(device: &'a dyn Device, services: &'a dyn Services, seed: u64) -> Self {
        Loader {
            device,
            services,
            drawn_by: DrawnBy::Device,
            seed,
            scratch: Scratch::default(),
            workspace: Scratch::default(),
            report: LoadReport::default(),
            decode_checks: DecodeChecks::default(),
            inspector: None,
            kept: None,
            calibrated: None,
            cache: None,
            initialise: None,
            initial: HashMap::new(),
        }
    }

    /// Has dense random params drawn by `drawn_by`, not by the device.
    pub fn drawing_by(self, drawn_by: DrawnBy) -> Self {
        Loader { drawn_by, ..self }
    }

    /// Makes the values of params that begin from a weight, when that weight is loaded. A param
    /// must be loaded after its weight.
    pub fn initialised_by(self, initialise: Option<Initialise<'a>>) -> Self {
        Loader { initialise, ..self }
    }

    /// Passes each weight that is encoded to `inspector`, where there is one.
    pub fn shown_to(self, inspector: Option<&'a dyn Inspector>) -> Self {
        Loader { inspector, ..self }
    }

    /// Takes weights from `kept` in place of encoding them, and puts there those that it encodes. A
    /// weight that an inspector is to see is encoded.
    pub fn keeping(self, kept: Option<&'a KeptWeights>) -> Self {
        Loader { kept, ..self }
    }

    /// Takes the weights that were calibrated from `calibrated`.
    pub fn calibrated_by(self, calibrated: Option<&'a CalibratedWeights>) -> Self {
        Loader { calibrated, ..self }
    }

    /// Takes weights from `cache` and puts there those that it encodes, where they are of files. A
    /// weight that an inspector is to see is encoded.
    pub fn caching(self, cache: Option<&'a WeightCache>) -> Self {
        Loader { cache, ..self }
    }

    /// What has been done so far.
    pub fn report(&self) -> LoadReport {
        LoadReport {
            decode_checks: self.decode_checks.made().to_vec(),
            ..self.report.clone()
        }
    }

    /// Loads param number `index` into `ranges`: one if it is dense, one a segment if it is packed.
    ///
    /// # Errors
    /// `Error::Weights` or `Error::File` for a tensor that is missing, of another shape or not
    /// finite. `Error::Plugin` for a call to the quantizer or the backend that failed.
    ///
    /// # Panics
    /// On an origin that [`super::check_origin`] refuses.
    pub fn load(
        &mut self,
        (index, param): (usize, &Param),
        ranges: &[BufferRange],
        origin: Origin<'_>,
        packing: Option<SegmentSource<'_>>,
    ) -> Result<(), Error> {
        let _about = call_site::about_text(&param.name);
        match (&param.layout, origin) {
            (WeightLayout::Dense(dtype), Origin::Files(store)) => {
                self.dense_from_files(param, ranges[0], *dtype, store)?;
            }
            (WeightLayout::Dense(dtype), Origin::Random) if param.init == Init::FromWeight => {
                let values = self.initial.remove(&index);
                let values = values.expect("its weight was loaded before");
                write(self.device, &values, *dtype, ranges[0]).during("upload")?;
            }
            (WeightLayout::Dense(dtype), Origin::Random) => {
                self.random(index, param, ranges[0], *dtype)?;
            }
            (WeightLayout::Packed(format), origin) => {
                match (packing.expect("a packed param has a packing"), origin) {
                    (SegmentSource::Saved(saved), Origin::Files(store)) => {
                        self.saved(ranges, store, SavedWeight::new(saved, format))?;
                        self.decode_checks.packed(param, format);
                    }
                    (SegmentSource::Encode(quantizer), origin) => {
                        self.packed(ranges, (index, param), format, (origin, quantizer))?;
                    }
                    (SegmentSource::Saved(_), Origin::Random) => {
                        unreachable!("`check_origin` refuses it")
                    }
                }
            }
        }
        self.report.placed += 1;
        self.initialise_from(index, ranges)
    }

    /// Makes the values of all params that begin from param number `weight`, which is loaded.
    fn initialise_from(&mut self, weight: usize, ranges: &[BufferRange]) -> Result<(), Error> {
        let Some(initialise) = self.initialise else {
            return Ok(());
        };
        for one in initialise.sites_of(weight) {
            let scratch = (&mut self.scratch, &mut self.workspace);
            let weight = (self.device, ranges);
            let values = initialise.values(one, weight, self.services, self.seed, scratch)?;
            self.initial.extend(one.params.iter().copied().zip(values));
        }
        Ok(())
    }

    fn dense_from_files(
        &mut self,
        param: &Param,
        range: BufferRange,
        dtype: DType,
        store: &TensorStore,
    ) -> Result<(), Error> {
        let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
        let mut values = vec![0.0f32; CHUNK_ELEMENTS.min(param.elements() as usize)];
        let mut first = 0;
        while first < param.elements() {
            let count = values.len().min((param.elements() - first) as usize);
            let part = &mut values[..count];
            store.read_elements_f32(&name, first, part)?;
            if let Some(at) = first_not_finite(part) {
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
        // The op has no kind for a constant.
        let is_constant = matches!(param.init, Init::Constant { .. });
        if self.drawn_by == DrawnBy::Host || is_constant {
            let drawn = Drawn::new(param.init, self.seed, index as u32);
            return self.drawn(&drawn, param.elements(), (range, dtype));
        }
        let attributes = match param.init {
            Init::Zeros => Attributes::new().with("kind", "zeros"),
            Init::Ones => Attributes::new().with("kind", "ones"),
            Init::Uniform { bound } => Attributes::new()
                .with("kind", "uniform")
                .with("bound", bound),
            Init::Normal { std } => Attributes::new().with("kind", "normal").with("std", std),
            Init::Constant { .. } => unreachable!("the host writes it"),
            Init::TorchUniform { .. } => unreachable!("only `load_frozen` draws such numbers"),
            Init::FromWeight => unreachable!("`load` takes those from their weight"),
        };
        let request = KernelRequest::new("init")
            .attributes(attributes)
            .outputs(vec![Operand::flat(param.elements(), dtype)]);
        let definition = op::definition("init", 1).expect("the interface defines it");
        let scalars = definition.scalars_by(|name| match name {
            "seed_low" => Some(f64::from(self.seed as u32)),
            "seed_high" => Some(f64::from((self.seed >> 32) as u32)),
            "param" => Some(index as f64),
            _ => None,
        });
        let scalars = scalars.during("prepare")?;
        let prepared = self.device.prepare(&request, &[]).during("prepare")?;
        let launched = self.device.launch(&Launch {
            kernel: prepared.kernel,
            stream: Stream(0),
            ranges: &[range],
            workspace: BufferRange { bytes: 0, ..range },
            tokens: 0,
            sequences: 0,
            scalars: &scalars,
        });
        let released = self.device.release(prepared.kernel).during("release");
        launched.during("launch").and(released)
    }

    /// Draws a param on the host, a part at a time.
    fn drawn(
        &self,
        drawn: &Drawn,
        elements: u64,
        (range, dtype): (BufferRange, DType),
    ) -> Result<(), Error> {
        let whole = elements.min(DRAWN_ELEMENTS) * dtype.bytes();
        let mut bytes = vec![0; whole as usize];
        for first in (0..elements).step_by(DRAWN_ELEMENTS as usize) {
            let count = DRAWN_ELEMENTS.min(elements - first) * dtype.bytes();
            let bytes = &mut bytes[..count as usize];
            drawn.write(first, dtype, bytes, self.services);
            let part = BufferRange {
                offset: range.offset + first * dtype.bytes(),
                bytes: count,
                ..range
            };
            let written = self.device.upload(bytes, part, Stream(0));
            written.during("upload")?;
        }
        Ok(())
    }

    /// Copies a weight that the files hold packed into its ranges, a part at a time.
    fn saved(
        &mut self,
        ranges: &[BufferRange],
        store: &TensorStore,
        weight: SavedWeight<'_>,
    ) -> Result<(), Error> {
        weight.read(store, |segment, at, part| {
            self.put(ranges, segment, (at, part))
        })
    }

    /// Uploads a part of a segment to its offset.
    fn put(
        &self,
        ranges: &[BufferRange],
        segment: usize,
        (at, part): (u64, &[u8]),
    ) -> Result<(), Error> {
        let range = BufferRange {
            offset: ranges[segment].offset + at,
            bytes: part.len() as u64,
            ..ranges[segment]
        };
        self.device.upload(part, range, Stream(0)).during("upload")
    }
}
