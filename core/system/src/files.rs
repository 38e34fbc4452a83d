//! Model, adapter and run directories -> named tensors, and back with atomic writes.
//!
//! Reading never maps or buffers a whole file: a header is parsed and checked once, and a tensor is
//! read by position in bounded chunks. Data is written to a `.partial` beside the target, synced
//! and renamed. A crash or a full disk leaves the earlier state.

mod adapter_directory;
mod atomic_file;
mod bounded_cache;
mod cache_directory;
mod directory_content;
mod directory_member;
mod error;
mod fetch_error;
mod file_hash;
mod file_kind;
mod hub_cache;
mod hub_fetch;
mod hub_snapshot;
mod json_file;
mod lock;
mod model_directory;
mod model_export;
mod pending_directory;
mod regular_file;
mod repo_kind;
mod run_directory;
mod run_state;
mod safetensors_header;
mod safetensors_writer;
mod shard_index;
mod tensor_store;
mod tree_hash;
mod weights_error;

pub use adapter_directory::{ADAPTER_FILES, AdapterDirectory, write_adapter};
pub use atomic_file::{PartialFile, copy_file, write_atomically, write_json};
pub use atomic_file::{free_bytes, write_error};
pub use bounded_cache::{BoundedCache, CacheEntry, cache_entries, clear_cache};
pub use cache_directory::cache_directory;
pub use directory_content::{Damage, check_file, check_size, files_below, hash_member};
pub use error::FileError;
pub use fetch_error::FetchError;
pub use file_hash::{FileHash, hash_bytes, hash_file, hash_json};
pub use file_kind::FileKind;
pub use hub_cache::{HubCache, hub_token_file};
pub use hub_fetch::{Fetch, FetchRequest, Wanted, fetch_with};
pub use hub_snapshot::HubSnapshot;
pub use json_file::read_object;
pub use lock::wait_for;
pub use model_directory::{CHAT_TEMPLATE, ModelDirectory, TOKENIZER_FILES};
pub use model_export::{
    Existing, GroupSink, MAX_SHARD_BYTES, NewModel, copy_files, refuse_existing, write_model,
    write_model_groups, write_pending_model,
};
pub use pending_directory::{PendingDirectory, remove_committed, sweep_leftover};
pub use regular_file::{Unopened, open_regular, read_regular, read_regular_text};
pub use repo_kind::RepoKind;
pub use run_directory::{
    COMPARISON, Continue, MadeDirectories, RunDirectory, holder_of, this_process,
};
pub use run_state::RunState;
pub use safetensors::Dtype as StoredDtype;
pub use safetensors_writer::{TensorSink, TensorSpec, interface_dtype, write_safetensors};
pub use tensor_store::{TensorEntry, TensorStore};
pub use weights_error::WeightsError;
