//! A model's sites and the quantizers chosen for them -> the packed weights, each with its format.

use espalier_compile::splice::weight_of;
use espalier_interface::abi::call_site;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::format::Format;
use espalier_interface::model::Model;
use espalier_interface::saved_form::{SavedContent, SavedForm, SavedTensor};
use espalier_interface::{DType, ErrorCode, Quantizer};
use espalier_registry::{Chosen, PluginFailure, answer};
use espalier_system::failure::UsageError;

use crate::Error;

/// A weight that is packed.
pub struct PackedWeight<'a> {
    /// Index of its site among the model's sites.
    pub site: usize,
    /// Index into [`Model::params`].
    pub param: usize,
    /// How its elements are stored in memory.
    pub format: Format,
    /// The quantizer that packs it.
    pub quantizer: &'a Chosen<dyn Quantizer>,
}

/// A packed weight as a checkpoint stores it.
#[derive(Clone, Debug)]
pub struct SavedParam {
    /// Name of the module, such as `model.layers.0.self_attn.q_proj`.
    pub module: String,
    /// Its tensors in the checkpoint.
    pub form: SavedForm,
}

impl SavedParam {
    /// The tensors of `weight`, which belongs to `site`.
    ///
    /// # Errors
    /// [`Error::Plugin`] where the quantizer fails, or where its saved form does not fit its
    /// format.
    pub fn new(site: &Site, weight: &PackedWeight<'_>) -> Result<Self, Error> {
        SavedParam::stored(site, weight, DType::F32)
    }

    /// Bytes of its largest tensor that is in another order than its segment.
    pub fn most_reordered(&self) -> u64 {
        let tensors = self.form.tensors.iter();
        let reordered = tensors.filter(|tensor| matches!(tensor.content, SavedContent::Order(_)));
        reordered.map(SavedTensor::bytes).max().unwrap_or(0)
    }

    /// As [`SavedParam::new`], for a weight that had the dtype `dtype` before it was packed.
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

/// The packed weights of a model. `quantizer_of` gives the quantizer of a site, if it is packed.
///
/// # Errors
/// [`Error::Usage`] for an embedding or a tied weight, and for quantizer options that do not fit a
/// weight. [`Error::Plugin`] for a format that is not valid. Errors of `quantizer_of`.
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

/// Turns a quantizer's refusal of a weight as `INVALID` into a usage error that names the weight.
/// Other errors are unchanged.
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
