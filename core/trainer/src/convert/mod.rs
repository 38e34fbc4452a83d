//! One model directory into another, weight by weight: packed, or with an adapter merged into it.
//!
//! At most one weight is held at a time. The new directory is written beside its place and put
//! there by one rename.

mod base_weight;
mod copy;
mod fragment;
mod joined;
pub mod merge;
pub mod quantize;
mod saved_weight;

use std::path::Path;

use espalier_interface::adaptation::Site;

use crate::Error;
use crate::answer;
use crate::config::ResolvedConfig;
use crate::files::{TensorStore, refuse_existing};
use crate::load::stored_name;
use crate::packing::weight_of;
use crate::plan::Purpose;
use crate::session::{Commons, Ground};
use crate::splice;
use crate::stop::StopFlag;

pub use espalier_interface::DType;
pub use saved_weight::SavedWeight;

/// The weights that an adapter is merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The dense weights that the checkpoint holds.
    Original,
    /// The values that the quantizer decodes to: those that the adapter was trained on.
    Decoded,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Weights that were packed, or into which the adapter was merged.
    pub changed: u64,
    /// Tensors copied as they were.
    pub copied: u64,
    /// Bytes of all weights before.
    pub bytes_before: u64,
    /// Bytes of all weights after.
    pub bytes_after: u64,
}

/// The directory to write, which must not be there.
fn new_directory(resolved: &ResolvedConfig) -> Result<&Path, Error> {
    let out = resolved.config().run.out.as_deref();
    let out = out.ok_or_else(|| Error::Usage {
        message: "no directory to write was given".to_owned(),
        next_step: "name one with --out DIR".to_owned(),
    })?;
    refuse_existing(out)?;
    Ok(out)
}

/// A model that is about to be written anew.
struct Source<'a> {
    ground: Ground<'a>,
    sites: Vec<Site>,
    store: TensorStore,
}

impl<'a> Source<'a> {
    /// Opens the model and makes the plugins that the config names.
    fn open(resolved: &'a ResolvedConfig, stop: &StopFlag) -> Result<Self, Error> {
        let commons = Commons::start(resolved.config(), stop)?;
        let ground = Ground::open(resolved, Purpose::Evaluate, &commons)?;
        answer::model(&ground.components.family, &ground.model)?;
        Ok(Source {
            sites: splice::sites(&ground.model),
            store: ground.directory.tensors()?,
            ground,
        })
    }

    /// The name under which the files hold the weight of `site`.
    fn stored_weight(&self, site: &Site) -> Result<String, Error> {
        let param = weight_of(&self.ground.model, site).ok_or_else(|| Error::Checkpoint {
            path: self.ground.directory.path().to_owned(),
            message: format!("the model describes no weight of `{}`", site.name),
        })?;
        self.stored_name(param)
    }

    /// The name under which the files hold param number `param` of the model.
    fn stored_name(&self, param: usize) -> Result<String, Error> {
        let spec = &self.ground.model.params[param];
        stored_name(&self.store, &spec.name, &spec.aliases, &spec.shape)
    }
}
