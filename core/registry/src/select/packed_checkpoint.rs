//! A checkpoint's `quantization_config` and its tensors' names -> the quantizer that each packed
//! weight needs.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use espalier_config::Section;
use espalier_interface::saved_form::SavedForm;
use espalier_interface::{DType, ErrorCode, Options, Quantizer, Services};
use espalier_system::files::{ModelDirectory, TensorStore, WeightsError};
use serde_json::Value as Json;

use super::saved_description::{Missing, describe};
use crate::Error;
use crate::chosen::Chosen;
use crate::registry::{PluginIdentity, Registry};

/// A shape that every quantizer takes, used to learn the tensor names of its form.
const SAMPLE: [u64; 2] = [64, 64];

/// A checkpoint whose weights are packed.
pub struct PackedCheckpoint {
    packings: Vec<PackedWith>,
    /// For each module with a packed weight, its index into `packings`.
    modules: HashMap<String, usize>,
}

/// A quantizer with the options that weights were packed with.
pub struct PackedWith {
    /// The options.
    pub options: Options,
    /// The quantizer.
    pub chosen: Chosen<dyn Quantizer>,
}

impl PackedCheckpoint {
    /// Reads how the weights of `directory` are packed; nothing where they are dense.
    ///
    /// # Errors
    /// [`Error::Registry`] for a method that no quantizer reads. [`Error::Weights`] for an option
    /// that cannot be read, and for a missing or broken description.
    pub fn open(
        directory: &ModelDirectory,
        registry: &Registry,
        services: &'static dyn Services,
    ) -> Result<Option<Self>, Error> {
        let config = match directory.config().get("quantization_config") {
            None | Some(Json::Null) => return Ok(None),
            Some(config) => config,
        };
        let broken = |message: String| {
            Error::Weights(WeightsError {
                path: directory.path().join("config.json"),
                message,
            })
        };
        let Some(method) = config.get("quant_method").and_then(Json::as_str) else {
            return Err(broken(
                "its quantization_config names no `quant_method`".to_owned(),
            ));
        };
        let store = directory.tensors()?;
        let mut reasons = Vec::new();
        for name in registry.quantizers_for(method)? {
            let reader = Chosen::quantizer(registry, &name, &Section::new(), services)?;
            let form = match reader.plugin.saved_form(SAMPLE, DType::F32) {
                Ok(form) => form,
                Err(error) => {
                    reasons.push(error.message);
                    continue;
                }
            };
            let Some(module) = packed_modules(&store, &form).pop_first() else {
                reasons.push(format!("no tensor is one of `{name}`'s"));
                continue;
            };
            // Missing tensors are left out here and refused once the reader is known.
            let saved = describe(config, &store, &module, &form, Missing::LeftOut)?;
            match reader.plugin.options_from_saved(&saved) {
                Err(error) if error.code == ErrorCode::UNSUPPORTED => reasons.push(error.message),
                _ => {
                    let reader = Reader {
                        name: &name,
                        reader,
                        form,
                        registry,
                        services,
                    };
                    return reader.read(config, &store).map(Some);
                }
            }
        }
        Err(broken(format!(
            "no quantizer reads its quantization_config: {}",
            reasons.join("; ")
        )))
    }

    /// How the weight of `module` is packed; nothing where it is dense.
    pub fn quantizer_of(&self, module: &str) -> Option<&PackedWith> {
        self.modules.get(module).map(|&index| &self.packings[index])
    }

    /// The component that packed it.
    pub fn component(&self) -> &str {
        &self.packings[0].chosen.identity.component
    }

    /// Where its quantizers came from.
    pub fn identities(&self) -> impl Iterator<Item = &PluginIdentity> {
        self.packings.iter().map(|packing| &packing.chosen.identity)
    }
}

/// The component that reads a checkpoint.
struct Reader<'a> {
    name: &'a str,
    reader: Chosen<dyn Quantizer>,
    form: SavedForm,
    registry: &'a Registry,
    services: &'static dyn Services,
}

impl Reader<'_> {
    fn read(&self, config: &Json, store: &TensorStore) -> Result<PackedCheckpoint, Error> {
        let mut packings: Vec<PackedWith> = Vec::new();
        let mut modules = HashMap::new();
        for module in packed_modules(store, &self.form) {
            let saved = describe(config, store, &module, &self.form, Missing::Refused)?;
            let options = self.reader.plugin.options_from_saved(&saved);
            let options = options.map_err(|error| match error.code {
                // The file is at fault, not the plugin that reads it.
                ErrorCode::INVALID | ErrorCode::UNSUPPORTED => {
                    damaged(store, &module, &error.message)
                }
                _ => self.reader.failed("options_from_saved", error),
            })?;
            let known = packings
                .iter()
                .position(|packing| packing.options == options);
            let index = match known {
                Some(index) => index,
                None => {
                    let chosen =
                        Chosen::quantizer(self.registry, self.name, &options.0, self.services)
                            .map_err(|error| damaged(store, &module, &error.to_string()))?;
                    packings.push(PackedWith { options, chosen });
                    packings.len() - 1
                }
            };
            modules.insert(module, index);
        }
        Ok(PackedCheckpoint { packings, modules })
    }
}

/// The modules that have a tensor that only packed modules have.
fn packed_modules(store: &TensorStore, form: &SavedForm) -> BTreeSet<String> {
    let endings: Vec<String> = form
        .tensors
        .iter()
        .filter(|tensor| tensor.name != "weight")
        .map(|tensor| format!(".{}", tensor.name))
        .collect();
    let names = store.entries().iter().map(|entry| entry.name.as_str());
    names
        .filter_map(|name| {
            endings
                .iter()
                .find_map(|ending| name.strip_suffix(ending.as_str()))
        })
        .map(str::to_owned)
        .collect()
}

/// The error for a description that is inconsistent.
fn damaged(store: &TensorStore, module: &str, message: &str) -> Error {
    let prefix = format!("{module}.");
    let entry = store
        .entries()
        .iter()
        .find(|entry| entry.name.starts_with(&prefix));
    Error::Weights(WeightsError {
        path: entry.map_or_else(PathBuf::new, |entry| store.file_of(entry).to_owned()),
        message: format!("packed weight of `{module}`: {message}"),
    })
}
