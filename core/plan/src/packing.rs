//! A model's sites and the quantizers chosen for them -> the weights that are packed, each with its format.

use espalier_interface::abi::call_site;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::format::Format;
use espalier_interface::model::{Model, ParamSpec};
use espalier_interface::saved_form::SavedForm;
use espalier_interface::{DType, ErrorCode, Quantizer};
use espalier_registry::{Chosen, PluginFailure, answer};
use espalier_system::failure::UsageError;

use crate::Error;

/// A weight that is packed.
pub struct PackedWeight<'a> {
    /// Index of its site.
    pub site: usize,
    /// Index into [`Model::params`].
    pub param: usize,
    /// How it lies in memory.
    pub format: Format,
    /// What packs it.
    pub quantizer: &'a Chosen<dyn Quantizer>,
}

/// A packed weight as a checkpoint holds it.
#[derive(Clone, Debug)]
pub struct SavedParam {
    /// The module that has it.
    pub module: String,
    /// Its tensors.
    pub form: SavedForm,
}

impl SavedParam {
    /// The tensors of `weight`, the weight of `site`.
    ///
    /// # Errors
    /// What the quantizer says; a form that does not fit its format.
    pub fn new(site: &Site, weight: &PackedWeight<'_>) -> Result<Self, Error> {
        SavedParam::stored(site, weight, DType::F32)
    }

    /// As [`SavedParam::new`], for a weight that was stored as `dtype` before it is packed.
    ///
    /// # Errors
    /// As [`SavedParam::new`].
    pub fn stored(site: &Site, weight: &PackedWeight<'_>, dtype: DType) -> Result<Self, Error> {
        let form = weight
            .quantizer
            .plugin
            .saved_form(weight.format.shape, dtype);
        let form = form.and_then(|form| form.validate(&weight.format).map(|()| form));
        Ok(SavedParam {
            module: site.name.clone(),
            form: form.map_err(|error| weight.quantizer.failed("saved_form", error))?,
        })
    }
}

/// The packed weights of a model; `quantizer_of` chooses for each site.
///
/// # Errors
/// A token table that was chosen; options that do not fit a weight; a format that is not valid; what `quantizer_of` reports.
pub fn packed_weights<'a>(
    model: &Model,
    sites: &[Site],
    quantizer_of: impl Fn(&Site) -> espalier_registry::Result<Option<&'a Chosen<dyn Quantizer>>>,
) -> Result<Vec<PackedWeight<'a>>, Error> {
    let mut packed = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        let Some(quantizer) = quantizer_of(site)? else {
            continue;
        };
        let Some(param) = weight_of(model, site) else {
            continue;
        };
        if site.kind == SiteKind::Embedding || site.tied_to.is_some() {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "[[sites]]: `{}` is a token table, which stays dense",
                    site.name
                ),
                next_step: "let the pattern match linears only".to_owned(),
            }));
        }
        let _about = call_site::about_text(&site.name);
        let format = answer::format(quantizer, site.shape)
            .map_err(|error| of_site(error.into(), &site.name))?;
        packed.push(PackedWeight {
            site: index,
            param,
            format,
            quantizer,
        });
    }
    Ok(packed)
}

/// The same failure; where the quantizer's options do not fit a weight, as the user's to change, with the weight's name.
fn of_site(error: Error, site: &str) -> Error {
    match error {
        Error::Plugin(PluginFailure { plugin, source, .. })
            if source.code == ErrorCode::INVALID =>
        {
            Error::Usage(UsageError {
                message: format!(
                    "`{site}` cannot be packed by `{plugin}`: {}",
                    source.message
                ),
                next_step: format!(
                    "change that option (`host plugins inspect {plugin}`), or keep the weight dense by \
                 [[sites]] with quantizer = \"none\""
                ),
            })
        }
        other => other,
    }
}

/// The index of a site's weight among the model's params.
pub fn weight_of(model: &Model, site: &Site) -> Option<usize> {
    let weight = format!("{}.weight", site.name);
    let named = |param: &ParamSpec| param.name == weight || param.aliases.contains(&weight);
    model.params.iter().position(named)
}
