//! The host's side of the conformance kit: a component across the boundary -> the checks of its
//! role, and those that need a host. These are gradients through packed weights, and a run of ten
//! steps.

mod code_device;
mod launch;
mod linear;
mod subject;
mod target;
mod training;

use std::cell::OnceCell;
use std::sync::Arc;

use espalier_compile::decompose::BackendOps;
use espalier_config::{ResolvedConfig, Sources, resolve};
pub use espalier_conformance::Report;
use espalier_conformance::{BOUNDS, Checked, Fault, ProcessGroup, Suite};
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::observer::StepMetrics;
use espalier_engine::ranks::launch;
use espalier_interface::search::SearchSpec;
use espalier_interface::{ErrorCode, PluginError};
use espalier_registry::{Chosen, Defaults, PluginFailure, Registry, RegistryError};
use espalier_system::failure::UsageError;
use espalier_system::threads::HostServices;
use serde_json::{Map, Value as Json};

use crate::Error;

use linear::Bench;
use training::{KitModel, Start};

pub use espalier_conformance::{Check, Outcome};
pub use target::Target;

/// Highest ratio of the last loss to the first for trained params that can learn all rows. These
/// are LoRA on a quantized base, or a family's own weights.
const FALL: f64 = 0.7;
/// The same for an adapter, which can have very few params.
const ADAPTER_FALL: f64 = 0.98;
/// Largest relative difference of two backends' losses: other orders of summation in f32, over ten
/// steps.
const BACKENDS_APART: f64 = 1e-3;

/// The component to check.
pub struct Subject<'a> {
    /// The registry with the component under test.
    pub registry: &'a Registry,
    /// The same plugin folders, and options, for the runs.
    pub sources: &'a Sources,
    /// The component's name.
    pub name: &'a str,
    /// For a family: the `config.json` to use in place of its own sample.
    pub config: Option<&'a Json>,
}

/// Runs the checks of a component's role. `watch` receives each.
///
/// # Errors
/// [`Error::Registry`] for an unknown name or a library that cannot be opened, [`Error::Config`]
/// for an invalid config.
pub fn check(subject: &Subject<'_>, watch: impl FnMut(&Check)) -> Result<Report, Error> {
    check_only(subject, &[], watch)
}

/// As [`check`], of the checks alone that `only` names, or whose names begin so; empty: all. The
/// check of an encoder's bounds is always among them: the others rely on it.
///
/// # Errors
/// As [`check`]; [`Error::Usage`] where a name is that of no check.
pub fn check_only(
    subject: &Subject<'_>,
    only: &[String],
    watch: impl FnMut(&Check),
) -> Result<Report, Error> {
    let component = subject.registry.component(subject.name)?;
    let resolved = resolve(subject.sources)?;
    let section = resolved.config().section(&component.role, subject.name);
    let options = section.cloned().unwrap_or_default();
    let defaults = Defaults::of_program()?;
    let asked: Vec<String> = match only {
        [] => Vec::new(),
        only => only.iter().cloned().chain([BOUNDS.to_owned()]).collect(),
    };
    let mut suite = Suite::watched(subject.name, watch).only(&asked);
    match component.role.as_str() {
        "quantizer" => subject.quantizer(&options, &resolved, defaults, &mut suite),
        "adapter" => subject.adapter(&options, &mut suite),
        "family" => subject.family(&options, &mut suite),
        "sharding" => subject.sharding(&options, defaults, &mut suite),
        "backend" => subject.backend(&options, defaults, &mut suite),
        "collective" => subject.collective(&options, &mut suite)?,
        role => suite.check("role", "the kit knows the role", || {
            Err(Fault::Failed(format!("no checks for a {role}")))
        }),
    }
    match only.iter().find(|name| !suite.has(name)) {
        None => Ok(suite.finish()),
        Some(name) => Err(Error::Usage(UsageError {
            message: format!("no check of a {} is called `{name}`", component.role),
            next_step: format!("name one of these: {}", suite.names().join(", ")),
        })),
    }
}

/// The first failed check of a report as an error that names plugin and check.
///
/// # Panics
/// Where none failed.
pub fn failure(report: &Report, registry: &Registry) -> Error {
    let mut failures = report.failures();
    let first = failures.next().expect("a check failed");
    let more = match failures.count() {
        0 => String::new(),
        1 => " (and one more check failed)".to_owned(),
        more => format!(" (and {more} more checks failed)"),
    };
    let reason = match &first.outcome {
        Outcome::Failed(reason) => reason.as_str(),
        _ => first.asserts,
    };
    let found = registry.inspect(&report.component);
    Error::Plugin(PluginFailure {
        plugin: report.component.clone(),
        callback: format!("the check `{}`", first.name),
        file: found.ok().and_then(|listing| listing.file),
        source: PluginError::new(ErrorCode::PROTOCOL, format!("{reason}{more}")),
    })
}

impl Subject<'_> {
    fn quantizer(
        &self,
        options: &Map<String, Json>,
        config: &ResolvedConfig,
        defaults: Defaults,
        suite: &mut Suite<'_>,
    ) {
        let quantizer = subject::quantizer(self.registry, self.name).given(options.clone());
        espalier_conformance::quantizer(&quantizer, suite);
        let sound = if suite.failed(BOUNDS) {
            // Its bytes are in the process's own memory.
            Err(Fault::Skipped(format!(
                "it would write over other memory: {BOUNDS}"
            )))
        } else {
            Ok(())
        };
        let device = OnceCell::new();
        let device = || {
            sound.clone()?;
            let opened = device.get_or_init(|| code_device::open(self.registry, config));
            opened.clone()
        };
        espalier_conformance::device_code(&quantizer, device, suite);
        let bench = sound.clone().and_then(|()| self.bench(options, defaults));
        linear::check(&bench, suite);
        let plugins = plugins(&[self.name, defaults.adapter]);
        let opened_model = sound.and_then(|()| self.opened_model(&[defaults.adapter]));
        training::check(&opened_model, Start::Adapter, &[plugins], FALL, suite);
    }

    fn adapter(&self, options: &Map<String, Json>, suite: &mut Suite<'_>) {
        let adapter = subject::adapter(self.registry, self.name).given(options.clone());
        espalier_conformance::adapter(&adapter, suite);
        let plugins = plugins(&[self.name]);
        let opened_model = self.opened_model(&[]);
        training::check(
            &opened_model,
            Start::Adapter,
            &[plugins],
            ADAPTER_FALL,
            suite,
        );
    }

    fn family(&self, options: &Map<String, Json>, suite: &mut Suite<'_>) {
        let family = subject::family(self.registry, self.name).given(options.clone());
        espalier_conformance::family(&family, self.config, suite);
        let sample = espalier_conformance::sample(&family, self.config);
        let (opened_model, config) = match sample {
            Ok(config) => (self.opened_model(&[]), config),
            Err(fault) => (Err(fault), Json::Null),
        };
        let plugins = plugins(&[self.name]);
        training::check(
            &opened_model,
            Start::Family(&config),
            &[plugins],
            FALL,
            suite,
        );
    }

    /// Under a launcher of several processes, all run the same checks.
    fn collective(&self, options: &Map<String, Json>, suite: &mut Suite<'_>) -> Result<(), Error> {
        let processes = launch()?.map_or(ProcessGroup::ALONE, |launch| ProcessGroup {
            own: launch.process,
            size: launch.processes,
        });
        let collective = subject::collective(self.registry, self.name).given(options.clone());
        espalier_conformance::collective(&collective, processes, suite);
        Ok(())
    }

    fn sharding(&self, options: &Map<String, Json>, defaults: Defaults, suite: &mut Suite<'_>) {
        let sharding = subject::sharding(self.registry, self.name).given(options.clone());
        espalier_conformance::sharding(&sharding, suite);
        suite.check(
            "search",
            "the capability `search`, where it is declared, names declared options and values",
            || {
                let component = self.registry.component(self.name);
                let component = component.map_err(|error| error.to_string())?;
                SearchSpec::of(&component)?;
                Ok(())
            },
        );
        let keys = [plugins(&[self.name, defaults.adapter])];
        let opened_model = self.opened_model(&[defaults.adapter]);
        let trained = training::check(&opened_model, Start::Adapter, &keys, FALL, suite);
        suite.check(
            "train.single",
            "one rank trains as under the default strategy, bit for bit",
            || {
                let keys = [plugins(&[defaults.sharding, defaults.adapter])];
                let expected = self.other(&opened_model, &trained, &[defaults.sharding], &keys)?;
                training::same(&trained.unwrap_or_default(), &expected)
            },
        );
    }

    fn backend(&self, options: &Map<String, Json>, defaults: Defaults, suite: &mut Suite<'_>) {
        let backend = subject::backend(self.registry, self.name).given(options.clone());
        espalier_conformance::backend(&backend, suite);
        let backend = format!("run.backend={:?}", self.name);
        let keys = [plugins(&[defaults.adapter]), backend];
        let opened_model = self.opened_model(&[defaults.adapter]);
        let trained = training::check(&opened_model, Start::Adapter, &keys, FALL, suite);
        suite.check(
            "train.reference",
            "ten steps in f32 have the losses of the reference backend's f64, to a thousandth",
            || {
                let reference = format!("run.backend={:?}", defaults.backend);
                let mut keys = vec!["model.compute=\"f64\"".to_owned(), reference];
                keys.push(plugins(&[defaults.adapter]));
                let expected = self.other(&opened_model, &trained, &[defaults.backend], &keys)?;
                training::close(&trained.unwrap_or_default(), &expected, BACKENDS_APART)
            },
        );
    }

    /// The run to compare with, which needs other components.
    fn other(
        &self,
        opened_model: &Checked<KitModel>,
        trained: &Option<Vec<StepMetrics>>,
        needed: &[&str],
        keys: &[String],
    ) -> Checked<Vec<StepMetrics>> {
        self.found(needed)?;
        trained.as_ref().ok_or_else(first_failed)?;
        let opened_model = opened_model.as_ref().map_err(Clone::clone)?;
        opened_model.train(Start::Adapter, keys)
    }

    /// The model for runs, if the other components that they need are available.
    fn opened_model(&self, needed: &[&str]) -> Checked<KitModel> {
        self.found(needed)?;
        KitModel::new(self.sources)
    }

    fn found(&self, needed: &[&str]) -> Checked {
        for name in needed {
            if self.registry.component(name).is_err() {
                return Err(Fault::Skipped(format!(
                    "it needs `{name}`, which is not found"
                )));
            }
        }
        Ok(())
    }

    /// The quantizer, and the reference device: the first of the default backend.
    fn bench(&self, options: &Map<String, Json>, defaults: Defaults) -> Checked<Bench> {
        self.found(&[defaults.backend])?;
        let services = HostServices::start(None).map_err(|error| error.to_string())?;
        let failed = |error: RegistryError| Fault::Failed(error.to_string());
        let created = self
            .registry
            .create_backend(defaults.backend, &Map::new(), services);
        // A backend outlives its devices.
        let backend = Box::leak(created.map_err(failed)?.0);
        let ops = BackendOps::new(defaults.backend, backend.ops()?);
        let created = self.registry.create_quantizer(self.name, options, services);
        let (plugin, identity) = created.map_err(failed)?;
        Ok(Bench {
            quantizer: Chosen {
                plugin: Arc::from(plugin),
                identity,
                options: options.clone(),
            },
            kernels: GraphKernels::new(Arc::from(backend.open(0)?), ops),
        })
    }
}

fn plugins(names: &[&str]) -> String {
    format!("plugins={names:?}")
}

fn first_failed() -> Fault {
    Fault::Skipped("the first run failed".to_owned())
}
