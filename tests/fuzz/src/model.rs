//! Bytes as a model's own files: its config, its tokenizer, and an adapter's directory.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use espalier_config::{Config, Sources, resolve};
use espalier_data::TextTokenizer;
use espalier_engine::observer::Unobserved;
use espalier_interface::ErrorCode;
use espalier_plan::plan::assumed::Assumed;
use espalier_registry::PluginFailure;
use espalier_system::failure::Failure;
use espalier_system::files::{AdapterDirectory, HubCache};
use espalier_system::stop::StopFlag;
use espalier_trainer::Error;
use espalier_trainer::session::{ProcessContext, Session};

use crate::place::{copy_tiny_without, parts, place, tiny, write};

/// Words of several alphabets, spaces and non-letters.
const TEXT: &str = "The quick brown fox, 12 times; \u{e9}\u{4e2d}\u{1f600}\u{202e}\t\0 <s></s>";

/// Plans a run on a model of this `config.json`.
pub fn config(data: &[u8]) {
    let folder = place(|folder| copy_tiny_without(folder, "config.json"));
    write(&folder.join("config.json"), data);
    plan(folder, None);
}

/// Loads a `tokenizer.json`, and encodes and decodes text with it.
pub fn tokenizer(data: &[u8]) {
    let folder = place(|folder| copy_tiny_without(folder, "tokenizer.json"));
    write(&folder.join("tokenizer.json"), data);
    match TextTokenizer::load(folder, 512) {
        Ok(tokenizer) => {
            // An unreadable file is an error.
            let ids = tokenizer.encode(TEXT).unwrap_or_default();
            let _ = tokenizer.encode_row(TEXT);
            let _ = tokenizer.decode(&ids);
            let _ = tokenizer.decode_plain(&[0, 1, 2, 511, 100_000, -1]);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Plans a run that starts from an adapter: its config, a zero byte, its tensors.
pub fn adapter(data: &[u8]) {
    let folder = place(|_| ()).join("adapter");
    fs::create_dir_all(&folder).expect("a folder");
    let (config, tensors) = parts(data);
    write(&folder.join("adapter_config.json"), config);
    write(&folder.join("adapter_model.safetensors"), tensors);
    match AdapterDirectory::open_with(&HubCache::at("no-cache"), &folder) {
        Ok(_) => plan(&tiny(), Some(&folder)),
        Err(error) => assert_eq!(error.exit_class().code(), 4, "{error}"),
    }
}

/// Plans a run on the model in `model`; a refusal is a fault of the files, not of a plugin.
fn plan(model: &Path, adapter: Option<&Path>) {
    static PROCESS_CONTEXT: LazyLock<ProcessContext> = LazyLock::new(|| {
        let mut config = Config::default();
        config.run.threads = Some(1);
        ProcessContext::start(&config, &StopFlag::new()).expect("a thread")
    });
    let mut sources = Sources::default()
        .flag("--model", "model.path", model.display().to_string())
        .set("plugins=[\"lora\"]")
        .set("run.threads=1")
        .set("data.max_seq_len=32");
    if let Some(adapter) = adapter {
        sources = sources.flag("--adapter", "model.adapter", adapter.display().to_string());
    }
    let resolved = resolve(&sources).expect("the config is right");
    let planned = Session::open_to_plan(
        &resolved,
        None,
        Assumed::default(),
        &PROCESS_CONTEXT,
        &Unobserved,
    );
    if let Err(Error::Plugin(PluginFailure { source, .. })) = &planned {
        // A kind of model that no plugin supports is refused by the plugin; all other errors are
        // faults of the file.
        let known = [
            ErrorCode::UNSUPPORTED,
            ErrorCode::NOT_FINITE,
            ErrorCode::OUT_OF_MEMORY,
        ];
        assert!(
            known.contains(&source.code),
            "a plugin is blamed for a file: {source}"
        );
    }
}
