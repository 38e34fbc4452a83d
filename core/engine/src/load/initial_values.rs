//! A weight that was just loaded, and an adapter -> the initial values of the params that begin
//! from it.

use std::collections::HashMap;

use espalier_compile::params::Param;
use espalier_interface::abi::call_site;
use espalier_interface::adaptation::Site;
use espalier_interface::{
    Adapter, BufferRange, Device, ErrorCode, InitialValues, InitialiseCall, PluginError, Quantizer,
    Services, Stream, WeightLayout,
};
use espalier_numeric::{first_not_finite, widen};
use espalier_plan::initialised_sites::InitialisedSite;
use espalier_registry::{Chosen, answer};

use super::Scratch;
use crate::Error;
use crate::encoded::decode_all;
use crate::error::{BackendCall, of_param};

/// Elements of a dense weight that are read at once.
const CHUNK_ELEMENTS: u64 = 1 << 18;

/// What `adapter` makes from the weight of a site for those of its `params` that begin from it,
/// each with its name and number of elements.
///
/// # Errors
/// `Error::Plugin` for an error of the adapter and a value that is not finite.
/// `Error::OutOfMemory`.
pub fn initial_values(
    adapter: &Chosen<dyn Adapter>,
    (site, weight): (&Site, &[f32]),
    params: &[(&str, u64)],
    seed: u64,
    workspace: &mut Scratch,
) -> Result<Vec<Vec<f32>>, Error> {
    let bytes = answer::initialise_workspace(adapter, site)?;
    let workspace = workspace.bytes(bytes as usize)?;
    let empty = params
        .iter()
        .map(|&(_, elements)| vec![0.0; elements as usize]);
    let mut values: Vec<Vec<f32>> = empty.collect();
    let named = params.iter().zip(&mut values);
    let named = named.map(|(&(name, _), values)| InitialValues { name, values });
    let call = InitialiseCall {
        site,
        weight,
        seed,
        workspace,
        params: named.collect(),
    };
    let _about = call_site::about_text(&site.name);
    let failed = |name: &str, error| adapter.failed("initialise", of_param(name, error));
    let made = adapter.plugin.initialise(call);
    made.map_err(|error| failed(&site.name, error))?;
    for (&(name, _), values) in params.iter().zip(&values) {
        if let Some(at) = first_not_finite(values) {
            let message = format!("element {at} is {}, expected a finite number", values[at]);
            let error = PluginError::new(ErrorCode::PROTOCOL, message);
            return Err(failed(name, error).into());
        }
    }
    Ok(values)
}

/// The inputs of making initial values.
#[derive(Clone, Copy)]
pub struct Initialise<'a> {
    /// The adapter.
    pub adapter: &'a Chosen<dyn Adapter>,
    /// The sites whose params it initialises.
    pub sites: &'a [InitialisedSite],
    /// All params of the run.
    pub params: &'a [Param],
    /// The quantizers of packed params, by their index.
    pub quantizers: &'a HashMap<usize, Chosen<dyn Quantizer>>,
}

impl<'a> Initialise<'a> {
    /// The sites whose weight is param number `weight`.
    pub fn sites_of(self, weight: usize) -> impl Iterator<Item = &'a InitialisedSite> {
        let sites = self.sites.iter();
        sites.filter(move |one| one.weight == weight)
    }

    /// The weight that param number `param` begins from.
    pub fn weight_of(self, param: usize) -> Option<usize> {
        let mut sites = self.sites.iter();
        let found = sites.find(|one| one.params.contains(&param))?;
        Some(found.weight)
    }

    /// The initial values of the params of `one`, in their order. Its weight is in `ranges`; the
    /// threads of `services` decode it where it is packed.
    ///
    /// # Errors
    /// `Error::Plugin` for an error of the adapter, a value that is not finite, and a call to the
    /// backend or the quantizer that failed. `Error::OutOfMemory`.
    pub fn values(
        self,
        one: &InitialisedSite,
        (device, ranges): (&dyn Device, &[BufferRange]),
        services: &dyn Services,
        seed: u64,
        (scratch, workspace): (&mut Scratch, &mut Scratch),
    ) -> Result<Vec<Vec<f32>>, Error> {
        let weight = scratch.floats(self.params[one.weight].elements() as usize)?;
        self.read(one.weight, (device, ranges), services, weight)?;
        let params = one.params.iter().map(|&index| &self.params[index]);
        let params = params.map(|param| (param.name.as_str(), param.elements()));
        let params: Vec<(&str, u64)> = params.collect();
        initial_values(self.adapter, (&one.site, weight), &params, seed, workspace)
    }

    /// Reads the weight with index `index` as the numbers that the run computes with.
    fn read(
        self,
        index: usize,
        (device, ranges): (&dyn Device, &[BufferRange]),
        services: &dyn Services,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let param = &self.params[index];
        let download = |range: BufferRange| {
            let mut bytes = vec![0; range.bytes as usize];
            let read = device.download(range, &mut bytes, Stream(0));
            read.during("download").map(|()| bytes)
        };
        match &param.layout {
            WeightLayout::Dense(dtype) => {
                let each = dtype.bytes();
                for (chunk, out) in out.chunks_mut(CHUNK_ELEMENTS as usize).enumerate() {
                    let bytes = download(BufferRange {
                        offset: ranges[0].offset + chunk as u64 * CHUNK_ELEMENTS * each,
                        bytes: out.len() as u64 * each,
                        ..ranges[0]
                    })?;
                    widen(&bytes, *dtype, out);
                }
                Ok(())
            }
            WeightLayout::Packed(format) => {
                let segments = ranges.iter().map(|&range| download(range));
                let segments = segments.collect::<Result<Vec<_>, _>>()?;
                let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
                let of = (&self.quantizers[&index], param.name.as_str(), &**format);
                decode_all(services, of, &segments, out)
            }
        }
    }
}
