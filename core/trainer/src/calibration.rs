//! A run's plan and rows -> the weights that its quantizers pack with statistics of their inputs.
//!
//! It runs before any weight is loaded, on the first device of this process. Every process of a run
//! computes the same bits from the same rows.

use std::path::Path;

use espalier_config::{Config, Init};
use espalier_data::{DataOptions, Dataset, Format, Vocabulary};
use espalier_engine::calibrate::{CalibrationCache, Calibrator, SiteToPack};
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::load::{CalibratedWeights, WeightCache};
use espalier_engine::observer::Observer;
use espalier_interface::adaptation::Site;
use espalier_interface::format::Format as WeightFormat;
use espalier_interface::model::Model;
use espalier_interface::{DeviceInfo, Quantizer};
use espalier_plan::plan::RunPlan;
use espalier_registry::select::Components;
use espalier_registry::{Chosen, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{ModelDirectory, TensorStore, hash_bytes, write_atomically};
use espalier_system::stop::StopFlag;
use serde_json::{Value as Json, json};

use crate::Error;

/// What calibration needs, besides the packed weights of the base.
pub struct Calibrating<'a> {
    pub config: &'a Config,
    pub directory: &'a ModelDirectory,
    pub model: &'a Model,
    pub components: &'a Components,
    /// The device of the first rank, on which the rows run.
    pub device: &'a DeviceInfo,
    /// The user's cache of packed weights.
    pub cache: Option<&'a WeightCache>,
    /// Where its rows come from.
    pub rows: TrainingRows<'a>,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// The rows of training, on which quantizers are calibrated where no other files are named.
#[derive(Clone, Copy)]
pub enum TrainingRows<'a> {
    /// The command has none.
    None,
    /// They were read.
    Read(&'a Dataset),
    /// They are those of `data.files`, which the command itself does not read.
    InFiles,
}

/// A weight that is packed by its quantizer while it is loaded.
pub struct WeightToPack<'a> {
    pub site: &'a Site,
    /// Index among the model's params.
    pub param: usize,
    pub format: &'a WeightFormat,
    pub quantizer: &'a Chosen<dyn Quantizer>,
}

impl Calibrating<'_> {
    /// The packed weights with statistics; none where no quantizer wants any, or the base is one of
    /// random numbers.
    ///
    /// # Errors
    /// [`Error::Usage`] without rows. As [`Calibrator::run`].
    pub fn run(
        &self,
        weights: &[WeightToPack<'_>],
        kernels: impl FnOnce() -> Result<GraphKernels, Error>,
    ) -> Result<Option<CalibratedWeights>, Error> {
        if self.config.model.init == Init::Random {
            return Ok(None);
        }
        let sites = weights.iter().map(|weight| {
            let shape = weight.format.shape;
            Ok(SiteToPack {
                site: &weight.site.name,
                param: weight.param,
                format: weight.format,
                quantizer: weight.quantizer,
                calibration: answer::calibration(weight.quantizer, &weight.site.name, shape)?,
            })
        });
        let sites: Vec<SiteToPack<'_>> = sites.collect::<Result<_, Error>>()?;
        let Some(first) = sites.iter().find(|site| site.calibration.is_some()) else {
            return Ok(None);
        };
        let component = &first.quantizer.identity.component;
        let rows = self
            .rows
            .of(self.config, self.directory, self.model, component)?;
        let backend = &self.components.backend.identity;
        let cache = self.cache.map(|weights| CalibrationCache {
            weights,
            backend,
            backend_options: self.config.backend.get(&backend.component),
            device: self.device,
        });
        let store: TensorStore = self.directory.tensors()?;
        let calibrator = Calibrator {
            model: self.model,
            sites: &sites,
            rows: &rows,
            kernels: &kernels()?,
            store: &store,
            services: self.components.services,
            cache: cache.as_ref(),
            observer: self.observer,
            stop: self.stop,
        };
        Ok(Some(calibrator.run(&self.config.data.cache_directory())?))
    }
}

impl TrainingRows<'_> {
    /// The rows of `data.calibration_files`, or the rows of training: as many as
    /// `data.calibration_rows` says, at equal distances in the order of the files.
    ///
    /// # Errors
    /// [`Error::Usage`] without rows; rows that cannot be read.
    pub fn of(
        self,
        config: &Config,
        directory: &ModelDirectory,
        model: &Model,
        component: &str,
    ) -> Result<Vec<Vec<i32>>, Error> {
        let data = &config.data;
        let files = if data.calibration_files.is_empty() {
            &data.files
        } else {
            &data.calibration_files
        };
        let own;
        let all = match (data.calibration_files.is_empty(), self) {
            (true, TrainingRows::Read(rows)) => rows,
            (true, TrainingRows::None) => return Err(no_rows(component)),
            _ if files.is_empty() => return Err(no_rows(component)),
            _ => {
                let vocabulary = Vocabulary::new(directory.path(), model.vocab_size as usize);
                // The files of a run's own rows have tokens, whatever its training files have.
                let options = DataOptions {
                    format: Format::Auto,
                    ..data.clone()
                };
                own = Dataset::load(files, &options, &vocabulary, &mut |_| {})?;
                &own
            }
        };
        let (count, wanted) = (all.num_sequences(), data.calibration_rows);
        let taken = count.min(wanted);
        let rows = (0..taken).map(|index| all.sequence(index * count / taken));
        let tokens = rows.map(|row| row.map(|row| row.tokens));
        let mut rows: Vec<Vec<i32>> = tokens.collect::<Result<_, _>>()?;
        rows.retain(|row| !row.is_empty());
        Ok(rows)
    }
}

fn no_rows(component: &str) -> Error {
    Error::Usage(UsageError {
        message: format!(
            "quantizer `{component}` packs the base with statistics of calibration rows, and there \
             are none"
        ),
        next_step: "name their files: --set 'data.calibration_files=[\"train.jsonl\"]'".to_owned(),
    })
}

/// The file of a run's directory with the rows that its base was calibrated on, by which other
/// commands make the same base.
pub const ROWS_FILE: &str = "calibration.jsonl";

/// The rows that a run calibrates on.
pub struct CalibrationRecord {
    quantizer: String,
    rows: usize,
    tokens: usize,
    /// A line a row.
    text: String,
}

impl CalibrationRecord {
    /// The rows of `plan`; nothing where no quantizer wants any.
    ///
    /// # Errors
    /// As [`TrainingRows::of`].
    pub fn of(
        plan: &RunPlan,
        (config, directory): (&Config, &ModelDirectory),
        rows: TrainingRows<'_>,
    ) -> Result<Option<Self>, Error> {
        let Some(calibration) = &plan.calibration else {
            return Ok(None);
        };
        let rows = rows.of(config, directory, &plan.model, &calibration.quantizer)?;
        let lines = rows
            .iter()
            .map(|row| format!("{}\n", json!({"input_ids": row})));
        Ok(Some(CalibrationRecord {
            quantizer: calibration.quantizer.clone(),
            rows: rows.len(),
            tokens: rows.iter().map(Vec::len).sum(),
            text: lines.collect(),
        }))
    }

    /// Writes the rows to `path`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        Ok(write_atomically(path, self.text.as_bytes())?)
    }

    /// What `run.json` says of them.
    pub fn to_json(&self) -> Json {
        json!({
            "quantizer": self.quantizer,
            "rows": self.rows,
            "tokens": self.tokens,
            "sha256": hash_bytes(self.text.as_bytes()),
        })
    }
}
