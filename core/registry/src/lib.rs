//! The plugins that were found, and the components of a run.

pub mod answer;
pub mod archive;
mod chosen;
mod data_dir;
mod defaults;
pub mod devices;
mod error;
pub mod library;
pub mod preset;
pub mod probe;
mod registry;
mod search_path;
pub mod sections;
pub mod select;
mod trial;

pub use chosen::Chosen;
pub use defaults::Defaults;
pub use error::{Error, Result};
pub use registry::{
    ComponentSource, ComponentSources, Created, Listing, NOT_FINITE_NEXT_STEP, PluginFailure,
    PluginIdentity, Probe, Registry, RegistryError, Status, Unusable,
};
pub use search_path::{SearchDir, SearchPath};
pub use trial::answer as answer_probe;
