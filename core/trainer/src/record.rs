//! A run's circumstances -> the content of `run.json`: what a result is a function of.

use serde_json::{Value as Json, json};

use crate::Error;
use crate::config::ResolvedConfig;
use crate::files::FileHash;
use crate::session::Session;

/// What `run.json` holds; `gemm_rate` in operations a second.
///
/// # Errors
/// A file of the model that cannot be read or hashed.
pub fn describe(
    resolved: &ResolvedConfig,
    session: &Session,
    gemm_rate: f64,
) -> Result<Json, Error> {
    let config = resolved.config();
    let info = &session.plan.device_info;
    let plugins: Vec<Json> = session
        .components
        .identities()
        .into_iter()
        .map(|identity| serde_json::to_value(identity).expect("an identity is plain data"))
        .collect();
    let (num_params, num_trained_params) = session.plan.num_params();
    let data = session.data.as_ref();
    let eval = data.and_then(|data| data.eval.as_ref());
    Ok(json!({
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
            "files": data.map(|data| data.train.dataset().files()),
            "eval_files": eval.map(|rows| rows.dataset().files()),
            "tokenizer_sha256": data.and_then(|data| data.tokenizer_sha256.as_ref()),
            "total_steps": data.map(|data| data.train.total_steps()),
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
    }))
}

/// Hashes of the model's config and weights.
fn model_files(session: &Session) -> Result<Vec<FileHash>, Error> {
    let directory = &session.directory;
    let has = |name: &str| Ok::<_, Error>(directory.file(name)?.is_some());
    let tensors = match has("model.safetensors")? || has("model.safetensors.index.json")? {
        true => Some(directory.tensors()?),
        false => None,
    };
    Ok(directory.hashes(tensors.as_ref())?)
}
