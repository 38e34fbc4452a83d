//! A resolved config -> everything of a run that stands before its first weight is read.

use std::sync::Arc;

use espalier_interface::model::Model;
use espalier_interface::{Device, DeviceInfo, ErrorCode};

use crate::Error;
use crate::config::{Config, ResolvedConfig};
use crate::data::{Dataset, Extent, Horizon, Schedule, Vocabulary};
use crate::files::ModelDirectory;
use crate::generate::Questions;
use crate::observer::{Event, Observer, PlanSummary};
use crate::plan::{self, Assumed, BatchLimits, Demand, Generation, Purpose, RunPlan};
use crate::registry::{Registry, SearchPath};
use crate::select::{self, Components};
use crate::stop::StopFlag;
use crate::threads::HostServices;
use crate::{bytes::Bytes, memory, sections};

/// A run's rows.
pub struct RunData {
    /// Steps of training; of an evaluation, one pass over its rows.
    pub train: Schedule,
    /// One pass over the held-out rows, if there are any.
    pub eval: Option<Schedule>,
    /// Rows to be answered at every evaluation.
    pub questions: Option<Questions>,
    /// The tokenizer's hash, where a row of text asked for it.
    pub tokenizer_sha256: Option<String>,
}

/// A run before its weights are read.
pub struct Session {
    /// The model's directory.
    pub directory: ModelDirectory,
    /// The plugins.
    pub components: Components,
    /// The rows; none where only a plan was asked for and no files were named.
    pub data: Option<RunData>,
    /// The plan.
    pub plan: RunPlan,
    /// The threads that everything runs on.
    pub services: &'static HostServices,
}

impl Session {
    /// Reads the model's config and the rows, makes the plugins and the plan of a training run.
    ///
    /// # Errors
    /// Whatever of it is wrong, before anything is written or a weight is read.
    pub fn open(resolved: &ResolvedConfig, observer: &dyn Observer) -> Result<Self, Error> {
        Session::open_for(resolved, Purpose::Train, observer, &StopFlag::new())
    }

    /// As [`Session::open`], for any purpose; plugins are told to stop when `stop` is.
    ///
    /// # Errors
    /// As [`Session::open`]; where nothing is trained, also an adapter that was never trained.
    pub fn open_for(
        resolved: &ResolvedConfig,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let ground = Ground::open(resolved, purpose, stop)?;
        let data = ground.rows(purpose, observer, stop)?;
        ground.plan_rows(purpose, data)
    }

    /// As [`Session::open`], to plan only: for another machine, or for `preset`, a model of which there is nothing but its
    /// config. A preset has no tokenizer, so that rows are not read and the largest micro-batch is the config's.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_to_plan(
        resolved: &ResolvedConfig,
        preset: Option<ModelDirectory>,
        assumed: Assumed,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let (purpose, stop) = (Purpose::Train, StopFlag::new());
        let reads_rows = preset.is_none();
        let mut ground = match preset {
            Some(preset) => Ground::of(resolved, preset, purpose, &stop)?,
            None => Ground::open(resolved, purpose, &stop)?,
        };
        assumed.replace(&mut ground.device_info);
        let data = match reads_rows {
            true => ground.rows(purpose, observer, &stop)?,
            false => None,
        };
        ground.plan_rows(purpose, data)
    }

    /// A session to generate in. `demand` says, once the model is known, how much is generated at once.
    ///
    /// # Errors
    /// As [`Session::open_for`]; what `demand` gives.
    pub fn open_to_generate(
        resolved: &ResolvedConfig,
        stop: &StopFlag,
        demand: impl FnOnce(&ModelDirectory, &Model) -> Result<Generation, Error>,
    ) -> Result<Self, Error> {
        let ground = Ground::open(resolved, Purpose::Generate, stop)?;
        let generation = demand(&ground.directory, &ground.model)?;
        let demand = Demand {
            purpose: Purpose::Generate,
            limits: BatchLimits {
                max_tokens: generation.max_tokens,
                max_sequences: generation.cache.slots,
            },
            generation: Some(generation),
        };
        ground.plan(demand, None)
    }

    /// The plan in a few numbers.
    pub fn summary(&self) -> PlanSummary {
        let (num_params, num_trained_params) = self.plan.num_params();
        let host = self.plan.device_info.shares_host_memory;
        let peak = self.plan.memory.peak();
        PlanSummary {
            model: self.directory.path().display().to_string(),
            plugins: self
                .components
                .identities()
                .iter()
                .map(|i| i.component.clone())
                .collect(),
            num_params,
            num_trained_params,
            total_steps: self
                .data
                .as_ref()
                .map_or(0, |data| data.train.total_steps()),
            peak_host_bytes: Bytes(if host { peak } else { self.plan.memory.program }),
            peak_device_bytes: Bytes(if host { 0 } else { peak }),
        }
    }
}

/// What stands of a session before its rows are read.
pub(crate) struct Ground<'a> {
    pub config: &'a Config,
    pub directory: ModelDirectory,
    pub components: Components,
    pub model: Model,
    pub device: Arc<dyn Device>,
    device_info: DeviceInfo,
    pub services: &'static HostServices,
}

impl<'a> Ground<'a> {
    /// Opens the model, makes the plugins and opens the device.
    ///
    /// # Errors
    /// Whatever of it is wrong; where nothing is trained, also an adapter that was never trained.
    pub fn open(
        resolved: &'a ResolvedConfig,
        purpose: Purpose,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let directory = model_directory(resolved.config())?;
        Ground::of(resolved, directory, purpose, stop)
    }

    /// As [`Ground::open`], with the model in `directory`.
    ///
    /// # Errors
    /// As [`Ground::open`].
    fn of(
        resolved: &'a ResolvedConfig,
        directory: ModelDirectory,
        purpose: Purpose,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let config = resolved.config();
        refuse_later_versions(config)?;
        let services = HostServices::start_until(config.run.threads, stop.clone())?;
        let registry = Registry::discover(&SearchPath::of(resolved));
        sections::check(resolved, &registry)?;
        let components = select::select(resolved, &directory, &registry, services)?;
        refuse_untrained_adapter(purpose, &components)?;
        let model = describe(&directory, &components)?;
        let (device, device_info) = open_device(config, &components)?;
        Ok(Ground {
            config,
            directory,
            components,
            model,
            device,
            device_info,
            services,
        })
    }

    /// The rows, where the config names any.
    fn rows(
        &self,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<RunData>, Error> {
        if self.config.data.files.is_empty() {
            return Ok(None);
        }
        let read = || read_rows(self, purpose, observer);
        let data = self.services.install(read)?;
        stop.check()?;
        Ok(Some(data))
    }

    fn plan_rows(self, purpose: Purpose, data: Option<RunData>) -> Result<Session, Error> {
        let without_rows = || limits_without_rows(self.config);
        let demand = Demand {
            purpose,
            limits: data.as_ref().map_or_else(without_rows, limits),
            generation: data
                .as_ref()
                .and_then(|data| data.questions.as_ref())
                .map(Questions::demand),
        };
        self.plan(demand, data)
    }

    fn plan(self, demand: Demand, data: Option<RunData>) -> Result<Session, Error> {
        let plan = plan::make(
            self.config,
            demand,
            self.model,
            &self.components,
            self.device,
            self.device_info,
            memory::resident_bytes(),
        )?;
        Ok(Session {
            directory: self.directory,
            components: self.components,
            data,
            plan,
            services: self.services,
        })
    }
}

/// Keys that the contract names and this version does not serve yet.
fn refuse_later_versions(config: &Config) -> Result<(), Error> {
    let refuse = |message: &str, next_step: &str| {
        Err(Error::Usage {
            message: message.to_owned(),
            next_step: next_step.to_owned(),
        })
    };
    if config.run.ranks.is_some_and(|ranks| ranks != 1) || config.run.devices.len() > 1 {
        return refuse(
            "this version trains on one rank and one device",
            "leave --ranks and --devices out, or set them to one",
        );
    }
    if config.optim.name != "adamw" {
        return refuse(
            &format!(
                "optim.name: expected \"adamw\", found \"{}\"",
                config.optim.name
            ),
            "set optim.name = \"adamw\"",
        );
    }
    Ok(())
}

/// Without training, an adapter must have been trained before.
fn refuse_untrained_adapter(purpose: Purpose, components: &Components) -> Result<(), Error> {
    match (&components.adapter, &components.saved_adapter) {
        (Some(adapter), None) if purpose != Purpose::Train => Err(Error::Usage {
            message: format!(
                "adapter `{}` was chosen, and no directory of a trained one",
                adapter.identity.component
            ),
            next_step: "name its directory with --adapter DIR, or leave the adapter out".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The model's directory.
fn model_directory(config: &Config) -> Result<ModelDirectory, Error> {
    let path = config.model.path.as_deref().ok_or_else(|| Error::Usage {
        message: "no model was given".to_owned(),
        next_step: "name its directory with --model DIR".to_owned(),
    })?;
    Ok(ModelDirectory::open(path)?)
}

/// The model that `config.json` describes.
pub(crate) fn describe(
    directory: &ModelDirectory,
    components: &Components,
) -> Result<Model, Error> {
    let family = &components.family;
    let described = family.plugin.describe(directory.config());
    described.map_err(|error| match error.code {
        // What the file says is at fault, not the plugin that reads it.
        ErrorCode::INVALID => Error::Checkpoint {
            path: directory.path().to_owned(),
            message: error.message,
        },
        _ => family.failed("describe", error),
    })
}

/// Opens the device that the config names, the backend's first otherwise.
pub(crate) fn open_device(
    config: &Config,
    components: &Components,
) -> Result<(Arc<dyn Device>, DeviceInfo), Error> {
    let backend = &components.backend;
    let devices = backend
        .plugin
        .devices()
        .map_err(|error| backend.failed("devices", error))?;
    let index = match config.run.devices.first() {
        None => 0,
        Some(wanted) => devices
            .iter()
            .position(|device| &device.name == wanted)
            .ok_or_else(|| Error::Usage {
                message: format!(
                    "backend `{}` has no device `{wanted}`: it has {}",
                    backend.identity.component,
                    devices
                        .iter()
                        .map(|d| d.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                next_step: "see `host doctor`".to_owned(),
            })?,
    };
    let info = devices.get(index).cloned().ok_or_else(|| Error::Usage {
        message: format!("backend `{}` has no device", backend.identity.component),
        next_step: "see `host doctor`".to_owned(),
    })?;
    let device = backend
        .plugin
        .open(index as u32)
        .map_err(|error| backend.failed("open", error))?;
    Ok((Arc::from(device), info))
}

/// Reads the rows and orders them into steps.
fn read_rows(
    ground: &Ground<'_>,
    purpose: Purpose,
    observer: &dyn Observer,
) -> Result<RunData, Error> {
    let (config, directory, model) = (ground.config, &ground.directory, &ground.model);
    let vocabulary = Vocabulary::new(directory.path(), model.vocab_size as usize);
    let mut progress = |read: crate::data::Progress<'_>| {
        observer.observe(&Event::ReadProgress {
            rows: read.rows,
            bytes: read.bytes,
            total_bytes: read.total_bytes,
        });
    };
    let seed = config.run.seed;
    let (train, eval) = match purpose {
        Purpose::Train => Dataset::open(&config.data, &vocabulary, seed, &mut progress)?,
        Purpose::Evaluate | Purpose::Generate => {
            let files = &config.data.files;
            let rows = Dataset::load_held_out(files, &config.data, &vocabulary, &mut progress)?;
            (rows, None)
        }
    };
    let longest = config.data.max_seq_len as u64;
    if longest > model.max_positions {
        observer.observe(&Event::Note(&format!(
            "data.max_seq_len is {longest}, the model was made for {} positions",
            model.max_positions
        )));
    }
    let which = match purpose {
        Purpose::Train => "training",
        Purpose::Evaluate | Purpose::Generate => "evaluation",
    };
    for note in notes(&train, which).into_iter().chain(
        eval.as_ref()
            .map(|eval| notes(eval, "held-out"))
            .unwrap_or_default(),
    ) {
        observer.observe(&Event::Note(&note));
    }
    let horizon = Horizon {
        epochs: config.run.epochs,
        max_steps: config.run.max_steps,
    };
    let train = match purpose {
        Purpose::Train => Schedule::training(&train, &config.data, seed, horizon)?,
        Purpose::Evaluate | Purpose::Generate => Schedule::evaluation(&train, &config.data)?,
    };
    let eval = eval
        .map(|eval| Schedule::evaluation(&eval, &config.data))
        .transpose()?;
    let tokenizer_sha256 = vocabulary.loaded_tokenizer().map(|t| t.sha256().to_owned());
    let asked = match purpose {
        Purpose::Train => eval.as_ref(),
        Purpose::Evaluate | Purpose::Generate => Some(&train),
    };
    let questions = match (config.run.eval_answers, asked) {
        (None, _) => None,
        (Some(count), Some(rows)) => {
            let rows = rows.dataset();
            Some(Questions::of(rows, count, directory, vocabulary)?)
        }
        (Some(_), None) => {
            return Err(Error::Usage {
                message: "run.eval_answers asks held-out rows, and there are none".to_owned(),
                next_step: "give data.eval_files or data.eval_split".to_owned(),
            });
        }
    };
    Ok(RunData {
        train,
        eval,
        questions,
        tokenizer_sha256,
    })
}

/// What became of rows that were not taken as they are.
fn notes(dataset: &Dataset, which: &str) -> Vec<String> {
    let counts = dataset.counts();
    let expected = [
        (counts.truncated, "cut to data.max_seq_len"),
        (counts.too_long, "left out: longer than data.max_seq_len"),
        (counts.untrained, "left out: no trained token"),
    ];
    let kinds = expected.into_iter().chain(counts.dropped.by_kind());
    let notes = kinds
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} of {} {which} rows {what}", counts.rows));
    let file = Some(dataset.file_bytes()).filter(|bytes| *bytes > 0);
    let file =
        file.map(|bytes| format!("{} of {which} tokens are in a temporary file", Bytes(bytes)));
    notes.chain(file).collect()
}

/// The largest micro-batch that the config allows.
fn limits_without_rows(config: &Config) -> BatchLimits {
    let data = &config.data;
    let full = data.micro_batch * data.max_seq_len;
    let max_tokens = data.pack_tokens.unwrap_or(full) as u64;
    let max_sequences = if data.pack_tokens.is_some() {
        data.batch_size
    } else {
        data.micro_batch
    };
    BatchLimits {
        max_tokens,
        max_sequences: max_sequences as u64,
    }
}

/// The largest micro-batch of training and evaluation.
fn limits(data: &RunData) -> BatchLimits {
    let eval = data
        .eval
        .as_ref()
        .map_or_else(Extent::default, Schedule::extent);
    let extent = data.train.extent().join(eval);
    BatchLimits {
        max_tokens: extent.max_tokens.max(1) as u64,
        max_sequences: extent.max_sequences.max(1) as u64,
    }
}
