//! A model's sites and an adaptation -> the sites whose params begin from their weight, and what
//! making them takes.

use std::collections::HashMap;

use espalier_compile::arena::aligned;
use espalier_compile::params::Param;
use espalier_compile::splice::weight_of;
use espalier_interface::Init;
use espalier_interface::adaptation::{Adaptation, Site};
use espalier_interface::model::Model;
use espalier_registry::answer;
use espalier_registry::select::Components;

use crate::Error;

/// A site whose adapter params begin from its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialisedSite {
    /// The site.
    pub site: Site,
    /// Index of its weight in the run's params.
    pub weight: usize,
    /// Indices of the adapter's params in the run's params.
    pub params: Vec<usize>,
}

/// The sites of an adaptation with params that begin from their weight.
pub fn initialised_sites(
    model: &Model,
    sites: &[Site],
    adaptation: &Adaptation,
) -> Vec<InitialisedSite> {
    let begins = |param: &usize| adaptation.params[*param].init == Init::FromWeight;
    let of_joins = adaptation.joins.iter();
    let of_joins = of_joins.map(|join| (join.site, join.params.as_slice()));
    let of_norms = adaptation.norms.iter();
    let of_norms = of_norms.map(|norm| (norm.site, std::slice::from_ref(&norm.param)));
    let begun = of_joins.chain(of_norms).filter_map(|(site, params)| {
        let own = params.iter().copied().filter(begins);
        let mut params: Vec<usize> = own.map(|param| model.params.len() + param).collect();
        params.sort_unstable();
        params.dedup();
        let site = sites[site].clone();
        let weight = weight_of(model, &site).filter(|_| !params.is_empty())?;
        Some(InitialisedSite {
            site,
            weight,
            params,
        })
    });
    begun.collect()
}

/// Most bytes that the initial values of a site take while they are made, beside the loaded weight.
/// They are the weight in f32 and its packed bytes, the adapter's workspace, and the values of a
/// unit.
///
/// # Errors
/// As [`answer::initialise_workspace`].
pub(crate) fn loading_bytes(
    initialised: &[InitialisedSite],
    components: &Components,
    params: &[Param],
) -> Result<u64, Error> {
    let adapter = match (&components.adapter, &components.saved_adapter) {
        (Some(adapter), None) => adapter,
        // The files of a saved adapter hold the values.
        _ => return Ok(0),
    };
    let mut most = 0;
    let mut of_units: HashMap<usize, u64> = HashMap::new();
    for one in initialised {
        let workspace = answer::initialise_workspace(adapter, &one.site)?;
        let weight = &params[one.weight];
        most = most.max(aligned(4 * weight.elements()) + weight.bytes() + workspace);
        for &param in &one.params {
            *of_units.entry(params[param].unit).or_default() += 4 * params[param].elements();
        }
    }
    Ok(most + of_units.into_values().max().unwrap_or(0))
}

/// Most bytes that a frozen param of an adapter takes while it is loaded: the tensor in f32, and
/// the part that a site reads.
pub(crate) fn frozen_loading_bytes(params: &[Param]) -> u64 {
    let frozen = params.iter().filter(|param| param.is_of_no_unit());
    let bytes = frozen.map(|param| 8 * param.elements());
    bytes.max().unwrap_or(0)
}
