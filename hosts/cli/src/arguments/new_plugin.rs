//! The arguments of `host plugins new`.

use std::path::PathBuf;

use clap::Args;
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use super::ConfigArguments;
use crate::sdk::Kind;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plugins new my-quantizer --kind quantizer\n  \
    host plugins new my-quantizer --kind quantizer --calibrated\n  \
    host plugins new my-adapter --kind adapter --out plugins/my-adapter\n\n\
    The crate holds the sources of the interface that this host was built with and needs no other\n\
    checkout. docs/write-a-quantizer.md goes from here to a training run.")]
pub struct NewPluginArguments {
    /// The plugin's name: lower case letters, digits and `-`
    pub name: String,
    /// What it does for the core
    #[arg(long, value_enum)]
    kind: Kind,
    /// A quantizer that packs with statistics of a weight's inputs
    #[arg(long)]
    calibrated: bool,
    /// The crate's directory, which does not exist yet [default: the name]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArguments,
}

impl NewPluginArguments {
    /// The kind of the crate.
    ///
    /// # Errors
    /// [`Error::Usage`] for a calibrated plugin that is no quantizer.
    pub fn kind(&self) -> Result<Kind, Error> {
        match (self.kind, self.calibrated) {
            (kind, false) => Ok(kind),
            (Kind::Quantizer, true) => Ok(Kind::CalibratedQuantizer),
            (_, true) => Err(Error::Usage(UsageError {
                message: "--calibrated is for quantizers, which pack with statistics".to_owned(),
                next_step: "leave it out, or name --kind quantizer".to_owned(),
            })),
        }
    }
}
