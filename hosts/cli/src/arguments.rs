//! The command line as written; the trainer's config defines its meaning.

mod cache;
mod check;
mod compare;
mod config_reference;
mod data;
mod eval;
mod expand;
mod generate;
mod import;
mod merge;
mod new_model;
mod new_plugin;
mod plan;
mod plugin_archive;
mod plugins;
mod quantize;
mod report;
mod shell;
mod split;
mod swap;
mod train;
mod unread;

use clap::{Args, Parser, Subcommand};
use espalier_config::Sources;
use espalier_trainer::error::Error;

pub use cache::{CacheArguments, CacheCommand};
pub use check::CheckArguments;
pub use compare::CompareArguments;
pub use config_reference::ConfigReferenceArguments;
pub use data::{DataArguments, DataCommand, RowArguments, RowDoctorArguments, ShowArguments};
pub use eval::EvalArguments;
pub use expand::ExpandArguments;
pub use generate::GenerateArguments;
pub use import::ImportArguments;
pub use merge::{BaseChoice, DtypeChoice, MergeArguments};
pub use new_model::NewModelArguments;
pub use new_plugin::NewPluginArguments;
pub use plan::PlanArguments;
pub use plugin_archive::{InstallArguments, PackArguments};
pub use plugins::{
    InspectArguments, ListArguments, LockArguments, PluginsArguments, PluginsCommand,
};
pub use quantize::QuantizeArguments;
pub use report::ReportArguments;
pub use shell::{CompletionsArguments, ManualArguments};
pub use split::SplitArguments;
pub use swap::SwapArguments;
pub use train::TrainArguments;
use unread::Unread;

/// The running program, even if its file was replaced since the start. It also tries plugin
/// libraries and renders chat templates.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// The flag that names the output directory of a run.
const RUN: &str = "--run";

/// Fine-tunes large language models where there is no room for them.
#[derive(Debug, Parser)]
#[command(name = "host", version, about, propagate_version = true)]
#[command(after_help = "Example:\n  \
    host train --plugins nf4,lora --model models/llama --data train.jsonl --out runs/first\n\n\
    Every value can also be set in a TOML file (--config), in the environment\n\
    (HOST__OPTIM__LEARNING_RATE=1e-4) or in --set optim.learning_rate=1e-4.\n\
    HOST_LOG=debug shows what happens inside.")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Also write events as lines of JSON to this descriptor, for programs that run this one
    #[arg(long, global = true, value_name = "FD", help_heading = "For programs")]
    pub events: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model, or an adapter on a frozen one
    Train(TrainArguments),
    /// Show what a run would take: memory by category, time, placement
    Plan(PlanArguments),
    /// Train several arms on the same batches, and compare them
    Compare(CompareArguments),
    /// Evaluate a model on rows: loss, perplexity, token accuracy
    Eval(EvalArguments),
    /// Show rows as the trainer sees them
    Data(DataArguments),
    /// Write a run's report anew: report.html and report.json
    Report(ReportArguments),
    /// Merge an adapter into its model, or unpack one: a complete directory
    Merge(MergeArguments),
    /// Pack a model's weights into a checkpoint that the ecosystem's own loader reads
    Quantize(QuantizeArguments),
    /// Add layers that change nothing yet, to train alone: a complete directory
    Expand(ExpandArguments),
    /// Move a part of the weights into an adapter (PiSSA, LoftQ): a base and an adapter
    Split(SplitArguments),
    /// Continue a text, answer many prompts, or talk
    Generate(GenerateArguments),
    /// Let another plugin take over in a running job
    Swap(SwapArguments),
    /// Show the components that can be chosen, or what one of them takes
    Plugins(PluginsArguments),
    /// Show every key of a config: type, default, allowed values, meaning
    Config(ConfigReferenceArguments),
    /// Take over a config of axolotl or TRL
    Import(ImportArguments),
    /// Show the packed weights that later runs take from the user's cache, or remove them
    Cache(CacheArguments),
    /// Show this machine, its devices and where plugins are looked for
    Doctor(DoctorArguments),
    /// Print what a shell completes this program's commands and options with
    Completions(CompletionsArguments),
    /// Write the manual's pages into a folder
    Manual(ManualArguments),
}

impl Command {
    /// Whether it tries a library or renders a template for another process, which reads this one's
    /// exit status.
    pub fn is_for_another(&self) -> bool {
        match self {
            Command::Plugins(plugins) => matches!(plugins.command, PluginsCommand::Probe(_)),
            Command::Data(data) => matches!(data.command, DataCommand::Render),
            _ => false,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  host doctor --plugin-dir target/plugins")]
pub struct DoctorArguments {
    #[command(flatten)]
    pub config: ConfigArguments,
}

impl DoctorArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        let more = &["quantizer.", "adapter.", "sharding.", "collective."];
        self.config.check_without_run("doctor", more)
    }
}

/// The layers that all commands read.
#[derive(Debug, Default, Args)]
pub struct ConfigArguments {
    /// TOML config file; may be repeated, a later one wins
    #[arg(long, value_name = "FILE")]
    config: Vec<String>,
    /// Set one config value, in TOML; may be repeated, the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder searched first for plugin libraries; may be repeated
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<String>,
}

impl ConfigArguments {
    /// Refuses what `--set` gives of `unread`.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    fn refuse(&self, unread: &Unread<'_>) -> Result<(), Error> {
        unread.refuse(&self.set)
    }

    /// Refuses keys that no command about plugins or this machine reads, and the plugin sections
    /// named in `more`.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    fn check_without_run(&self, command: &str, more: &[&str]) -> Result<(), Error> {
        self.refuse(&Unread {
            command,
            keys: &[
                unread::TRAINING,
                unread::COMPARISON,
                unread::ROWS,
                unread::OUTPUT,
                unread::MODELS,
                &[
                    "run.ranks",
                    "run.peer_timeout_secs",
                    "run.join_timeout_secs",
                    "run.device_collective",
                ],
                more,
            ],
            but: &[],
        })
    }

    /// Files, environment, `--set` and flags as layers.
    pub fn sources(&self) -> Sources {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .map(|(name, value)| (name, value.to_string_lossy().into_owned()));
        let mut sources = Sources::default()
            .environment(environment)
            .prober(THIS_PROGRAM);
        for path in &self.config {
            sources = sources.file(path);
        }
        for assignment in &self.set {
            sources = sources.set(assignment);
        }
        if !self.plugin_dir.is_empty() {
            let dirs = self.plugin_dir.clone();
            sources = sources.flag("--plugin-dir", "run.plugin_dirs", dirs);
        }
        sources
    }
}

/// The arguments of every command that loads a model; each is a config value under another name.
#[derive(Debug, Default, Args)]
pub struct ModelArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Components by name, one a role: nf4,lora
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    plugins: Vec<String>,
    /// Model directory, as Hugging Face lays it out, or a model of the hub: org/name
    #[arg(long, value_name = "DIR", overrides_with = "model")]
    model: Option<String>,
    /// PEFT adapter directory to start from
    #[arg(long, value_name = "DIR", overrides_with = "adapter")]
    adapter: Option<String>,
    /// Compute backend
    #[arg(long, value_name = "NAME", overrides_with = "backend")]
    backend: Option<String>,
    /// Devices
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    devices: Vec<String>,
    /// Worker threads; never changes a result
    #[arg(long, value_name = "N", overrides_with = "threads")]
    threads: Option<u64>,
}

impl ModelArguments {
    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let sources = self.config.sources();
        let sources = with_flag(sources, "--plugins", "plugins", given(&self.plugins));
        let sources = with_flag(sources, "--devices", "run.devices", given(&self.devices));
        let sources = with_flag(sources, "--model", "model.path", self.model.clone());
        let sources = with_flag(sources, "--adapter", "model.adapter", self.adapter.clone());
        let sources = with_flag(sources, "--backend", "run.backend", self.backend.clone());
        with_flag(sources, "--threads", "run.threads", self.threads)
    }
}

/// The arguments of every command that takes rows through a model.
#[derive(Debug, Default, Args)]
pub struct RowsArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Files of rows, or a dataset of the hub: org/name
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<String>,
    /// Rank threads of this process
    #[arg(long, value_name = "N", overrides_with = "ranks")]
    ranks: Option<u64>,
}

impl RowsArguments {
    /// All layers, the flags last.
    fn sources(&self) -> Sources {
        let sources = self.model.sources();
        let sources = with_flag(sources, "--data", "data.files", given(&self.data));
        with_flag(sources, "--ranks", "run.ranks", self.ranks)
    }

    /// The layers that all commands read.
    fn config(&self) -> &ConfigArguments {
        &self.model.config
    }
}

/// The arguments that train, plan and compare share.
#[derive(Debug, Default, Args)]
pub struct RunArguments {
    #[command(flatten)]
    rows: RowsArguments,
    /// Output directory
    #[arg(long, value_name = "DIR", overrides_with = "out")]
    out: Option<String>,
}

impl RunArguments {
    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let sources = self.rows.sources();
        with_flag(sources, "--out", "run.out", self.out.clone())
    }

    /// The layers that all commands read.
    fn config(&self) -> &ConfigArguments {
        self.rows.config()
    }
}

/// `sources` and `flag`, where it was given, for `key`.
fn with_flag(
    sources: Sources,
    flag: &str,
    key: &str,
    value: Option<impl Into<serde_json::Value>>,
) -> Sources {
    match value {
        Some(value) => sources.flag(flag, key, value),
        None => sources,
    }
}

/// A list that is not empty.
fn given(list: &[String]) -> Option<Vec<String>> {
    (!list.is_empty()).then(|| list.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut host = Arguments::command();
        host.build();
        assert!(shows_example(&host), "host");
        for command in host.get_subcommands().filter(|c| c.get_name() != "help") {
            assert!(shows_example(command), "{}", command.get_name());
            for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
                assert!(shows_example(inner), "{}", inner.get_name());
            }
        }
    }

    fn shows_example(command: &clap::Command) -> bool {
        let help = command.get_after_help().map(ToString::to_string);
        help.is_some_and(|help| help.contains("Example"))
    }

    #[test]
    fn a_repeated_flag_wins_and_lists_grow() {
        let line = "host train --model a --model b --data x y --data z --plugins nf4,lora";
        let arguments = Arguments::try_parse_from(line.split(' ')).expect("valid");
        let Command::Train(train) = arguments.command else {
            panic!("not train")
        };
        assert_eq!(train.run.rows.model.model.as_deref(), Some("b"));
        assert_eq!(train.run.rows.data, ["x", "y", "z"]);
        assert_eq!(train.run.rows.model.plugins, ["nf4", "lora"]);
    }
}
