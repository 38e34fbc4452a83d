//! A run's circumstances -> `run.json`: what a result is a function of.

use serde_json::{Value as Json, json};

use crate::Error;
use crate::config::ResolvedConfig;
use crate::files::{self, RunDirectory};
use crate::session::Session;

/// Writes `run.json` into the run's directory.
///
/// # Errors
/// A file that cannot be hashed or written.
pub fn write_run(
    directory: &RunDirectory,
    resolved: &ResolvedConfig,
    session: &Session,
    gemm_rate: f64,
) -> Result<(), Error> {
    let config = resolved.config();
    let info = &session.plan.device_info;
    let plugins: Vec<Json> = session
        .components
        .identities()
        .into_iter()
        .map(|identity| serde_json::to_value(identity).expect("an identity is plain data"))
        .collect();
    let (num_params, num_trained_params) = session.plan.num_params();
    let run = json!({
        "espalier": env!("CARGO_PKG_VERSION"),
        "config": config,
        "plugins": plugins,
        "model": {
            "path": session.directory.path(),
            "files": model_files(session)?,
            "num_params": num_params,
            "num_trained_params": num_trained_params,
        },
        "data": {
            "files": session.data.train.dataset().files(),
            "eval_files": session.data.eval.as_ref().map(|rows| rows.dataset().files()),
            "tokenizer_sha256": session.data.tokenizer_sha256,
            "total_steps": session.data.train.total_steps(),
        },
        "seed": config.run.seed,
        "world": 1,
        "instruction_set": info.instruction_set,
        "machine": {
            "device": info.name,
            "description": info.description,
            "memory_bytes": info.memory_bytes,
            "threads": espalier_interface::Services::threads(session.services),
            "gemm_flops_per_sec": gemm_rate,
        },
        "memory": session.plan.memory,
    });
    files::write_json(&directory.file("run.json"), &run)?;
    Ok(())
}

/// Hashes of the model's config and weights.
fn model_files(session: &Session) -> Result<Vec<Json>, Error> {
    let mut paths = vec![session.directory.path().join("config.json")];
    if session.directory.file("model.safetensors")?.is_some()
        || session
            .directory
            .file("model.safetensors.index.json")?
            .is_some()
    {
        let tensors = session.directory.tensors()?;
        paths.extend(tensors.files().map(std::path::Path::to_owned));
    }
    paths
        .iter()
        .map(|path| {
            let hash = files::hash_file(path)?;
            Ok(serde_json::to_value(hash).expect("a hash is plain data"))
        })
        .collect()
}
