//! The packed params of a run: their formats, their quantizers, and those packed on disk already.

use std::collections::HashMap;

use espalier_compile::arena::aligned;
use espalier_compile::params::{Param, Training};
use espalier_config::Config;
use espalier_interface::Quantizer;
use espalier_interface::adaptation::Site;
use espalier_interface::format::Format;
use espalier_interface::model::Model;
use espalier_registry::select::{Components, PackedCheckpoint};
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;

use crate::Error;
use crate::packing::{SavedParam, packed_weights};
use crate::trained_weights::TrainedWeights;

/// How weights are packed, by the indices of their params.
#[derive(Default)]
pub(super) struct PackedParams {
    /// The format of each packed param.
    pub formats: HashMap<usize, Format>,
    /// The quantizer of each packed param.
    pub quantizers: HashMap<usize, Chosen<dyn Quantizer>>,
    /// Where the checkpoint holds params that are packed already.
    pub saved: HashMap<usize, SavedParam>,
}

impl PackedParams {
    /// The packed params of a run: the linears of layers, unless `[[sites]]` or the checkpoint say
    /// otherwise. Weights that `model.train_only` names are not packed.
    ///
    /// # Errors
    /// [`Error::Usage`] where a packed weight is to be trained itself. As [`packed_weights`] and
    /// [`SavedParam::new`].
    pub fn of(
        config: &Config,
        model: &Model,
        sites: &[Site],
        components: &Components,
        (training, trained): (Training, &TrainedWeights),
    ) -> Result<Self, Error> {
        let packed = components.quantizers.packed();
        let weights = packed_weights(model, sites, |site| components.quantizer_of(config, site))?;
        let mut made = PackedParams::default();
        for weight in weights {
            let site = &sites[weight.site];
            let named = trained.are_named(&model.params[weight.param].name);
            if training == Training::Full || training == Training::Part && named && packed.is_some()
            {
                return Err(packed_and_trained(site, packed));
            }
            if named && packed.is_none() {
                continue;
            }
            if packed.is_some() {
                let saved = SavedParam::new(site, &weight)?;
                made.saved.insert(weight.param, saved);
            }
            made.quantizers
                .insert(weight.param, weight.quantizer.clone());
            made.formats.insert(weight.param, weight.format);
        }
        Ok(made)
    }

    /// Most bytes that loading one weight takes: the weight in f32, and its encoder's workspace.
    /// Weights that are packed on disk already are loaded in parts, but for tensors in another
    /// order than their segments: of these both are held.
    ///
    /// # Errors
    /// As [`answer::encode_workspace`].
    pub fn loading_bytes(&self, params: &[Param]) -> Result<u64, Error> {
        let mut most = 0;
        for (index, param) in params.iter().enumerate() {
            if let Some(saved) = self.saved.get(&index) {
                most = most.max(2 * saved.most_reordered());
            } else if let Some(quantizer) = self.quantizers.get(&index) {
                let shape = param.matrix().expect("a packed param is a matrix");
                let workspace = answer::encode_workspace(quantizer, shape)?;
                most = most.max(aligned(param.elements() * 4) + workspace);
            }
        }
        Ok(most)
    }
}

/// The error for training all of a model that has a packed weight.
fn packed_and_trained(site: &Site, packed: Option<&PackedCheckpoint>) -> Error {
    let (message, next_step) = match packed {
        Some(packed) => (
            format!(
                "`{}` is packed by `{}` in the checkpoint, and packed weights cannot be trained themselves",
                site.name,
                packed.component()
            ),
            "add an adapter (--plugins lora), train dense weights only (model.train_only), or start \
             from the model's original weights",
        ),
        None => (
            format!(
                "`{}` is to be packed and trained at once: a quantizer was chosen, and no adapter",
                site.name
            ),
            "add an adapter (--plugins nf4,lora), train some weights only (model.train_only), or \
             leave the quantizer out",
        ),
    };
    Error::Usage(UsageError {
        message,
        next_step: next_step.to_owned(),
    })
}
