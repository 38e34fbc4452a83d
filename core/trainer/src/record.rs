//! A run's settings and inputs -> the content of `run.json`: all inputs that determine the result.

use std::collections::BTreeSet;

use espalier_config::ResolvedConfig;
use espalier_data::{BatchSchedule, Dataset};
use espalier_interface::DType;
use espalier_plan::plan::{RunPlan, WorldMemory};
use espalier_registry::select::PackedCheckpoint;
use espalier_system::files::{self, AdapterDirectory, FileHash, HubSnapshot};
use serde_json::{Value as Json, json};

use crate::Error;
use crate::calibration::{CalibrationRecord, TrainingRows};
use crate::checkpoint::CONFIG_VERSION;
use crate::recorded::WORKING_DIRECTORY;
use crate::session::Session;

/// The content of `run.json` without the part that [`complete`] adds. No weights are read.
///
/// # Errors
/// [`Error::Data`] for rows that cannot be read back.
pub(crate) fn outline(resolved: &ResolvedConfig, session: &Session) -> Result<Json, Error> {
    let config = resolved.config();
    let info = &session.run.plan.device_info;
    let plugins: Vec<Json> = session
        .components
        .identities()
        .into_iter()
        .chain(session.collectives.identities())
        .map(|identity| serde_json::to_value(identity).expect("an identity is plain data"))
        .collect();
    let (num_params, num_trained_params) = session.run.plan.num_params();
    let data = session.data.as_ref();
    let eval = data.and_then(|data| data.eval.as_ref());
    // Rows split off the training files are counted with these files.
    let eval_counts = data.zip(eval).and_then(|(data, eval)| {
        let (train, eval) = (data.train.dataset(), eval.dataset());
        (!eval.shares_files(train)).then(|| eval.counts())
    });
    let saved_adapter = session.components.saved_adapter.as_ref();
    let training_rows = data.and_then(|data| data.calibration.as_ref());
    let training_rows = training_rows.map_or(TrainingRows::None, TrainingRows::Read);
    let model = (config, &session.directory);
    let calibration = CalibrationRecord::of(&session.run.plan, model, training_rows)?;
    let rows = data.map(|data| data.train.dataset()).into_iter();
    let rows = rows.chain(eval.map(|rows| rows.dataset()));
    Ok(json!({
        "espalier": env!("CARGO_PKG_VERSION"),
        "config_version": CONFIG_VERSION,
        "config": config,
        "plugins": plugins,
        // Relative paths of the config begin here. No effect on the result.
        WORKING_DIRECTORY: working_directory(),
        // No effect on the result: for human readers only.
        "plugin_places": session.places,
        "adapter_options": session.components.adapter_options,
        "model": {
            "path": session.directory.path(),
            "revision": HubSnapshot::of(session.directory.path()),
            "files": Json::Null,
            "adapter_files": Json::Null,
            "adapter_revision": saved_adapter.and_then(|adapter| HubSnapshot::of(adapter.path())),
            "packed_by": session.components.quantizers.packed().map(PackedCheckpoint::component),
            "num_params": num_params,
            "num_trained_params": num_trained_params,
        },
        "data": {
            "files": data.map(|data| data.train.dataset().files()),
            "eval_files": eval.map(|rows| rows.dataset().files()),
            "revisions": revisions(rows),
            "tokenizer_sha256": data.and_then(|data| data.tokenizer_sha256.as_ref()),
            "counts": data.map(|data| data.train.dataset().counts()),
            "eval_counts": eval_counts,
            "split_tokens": data.map(|data| data.train.dataset().split_tokens()),
            "total_steps": data.map(|data| data.train.total_steps()),
            "steps_per_epoch": data.map(|data| data.train.steps_per_epoch()),
            "first_step_sha256": data.map(|data| first_step_sha256(&data.train)).transpose()?.flatten(),
        },
        "calibration": calibration.map(|record| record.to_json()),
        "plan_sha256": plan_sha256(&session.run.plan),
        // No effect on the result beside the config: for human readers and the report.
        "param_groups": session.run.plan.groups.all(),
        "seed": config.run.seed,
        "world": session.run.plan.demand.world.ranks,
        "instruction_set": instruction_set(&info.instruction_set, session.run.plan.dtypes.compute),
        "machine": {
            "device": info.name,
            "description": info.description,
            "memory_bytes": info.memory_bytes,
            "threads": espalier_interface::Services::threads(session.services),
            "gemm_flops_per_sec": Json::Null,
        },
        "memory": session.run.plan.memory,
        "world_memory": WorldMemory::of(&session.run.plan),
        "idle_ranks": session.idle_ranks(config),
    }))
}

/// The folder that this process runs in; none where it was removed.
fn working_directory() -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    Some(folder.display().to_string())
}

/// The commits of the hub's repositories that the rows are of.
fn revisions<'a>(rows: impl Iterator<Item = &'a Dataset>) -> BTreeSet<HubSnapshot> {
    let files = rows.flat_map(|rows| rows.files());
    files
        .filter_map(|file| HubSnapshot::of(&file.path))
        .collect()
}

/// The part of a device's instruction set that computes in `compute`. A part after a `+` that is
/// a dtype's name, or ends in `-` and one, serves that dtype alone.
fn instruction_set(device: &str, compute: DType) -> String {
    let serves = |part: &&str| {
        let name = part.rsplit('-').next().unwrap_or(part);
        DType::from_name(name).is_none_or(|dtype| dtype == compute)
    };
    let parts: Vec<&str> = device.split('+').filter(serves).collect();
    parts.join("+")
}

/// Adds the hashes of the model's and the adapter's files, and `gemm_rate` in operations per
/// second, to an outline.
///
/// # Errors
/// A file of the model that cannot be read or hashed.
pub(crate) fn complete(run: &mut Json, session: &Session, gemm_rate: f64) -> Result<(), Error> {
    let adapter = session.components.saved_adapter.as_ref();
    run["model"]["files"] = json!(model_files(session)?);
    run["model"]["adapter_files"] = json!(adapter.map(adapter_files).transpose()?);
    run["machine"]["gemm_flops_per_sec"] = json!(gemm_rate);
    Ok(())
}

/// Hashes of the model's config and weights.
fn model_files(session: &Session) -> Result<Vec<FileHash>, Error> {
    let directory = &session.directory;
    let has = |name: &str| Ok::<_, Error>(directory.file(name)?.is_some());
    let tensors = if has("model.safetensors")? || has("model.safetensors.index.json")? {
        Some(directory.tensors()?)
    } else {
        None
    };
    Ok(directory.hashes(tensors.as_ref())?)
}

/// Hashes of the adapter that the run starts from.
fn adapter_files(adapter: &AdapterDirectory) -> Result<Vec<FileHash>, Error> {
    let hash = |name| Ok(files::hash_file(&adapter.path().join(name))?);
    files::ADAPTER_FILES.into_iter().map(hash).collect()
}

/// Hash of the descriptions of model and adapter, and of the storage of every param.
pub(crate) fn plan_sha256(plan: &RunPlan) -> String {
    let params: Vec<_> = plan
        .params
        .iter()
        .map(|param| {
            (
                &param.name,
                &param.shape,
                &param.layout,
                param.trainable,
                param.init,
            )
        })
        .collect();
    files::hash_json(&(
        &plan.model,
        &plan.adaptation,
        params,
        plan.dtypes.compute,
        plan.dtypes.reduce,
    ))
}

/// Hash of the tokens and labels of the first step, the result of files, tokenizer and template.
fn first_step_sha256(rows: &BatchSchedule) -> Result<Option<String>, Error> {
    if rows.total_steps() == 0 {
        return Ok(None);
    }
    let micro_batches = rows.step(0)?.micro_batches;
    let numbers: Vec<_> = micro_batches
        .iter()
        .map(|micro| (&micro.tokens, &micro.labels, &micro.cu_seqlens))
        .collect();
    Ok(Some(files::hash_json(&numbers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_for_another_dtype_are_not_recorded() {
        for (device, compute, recorded) in [
            ("avx512+bf16", DType::BF16, "avx512+bf16"),
            ("avx512+bf16", DType::F32, "avx512"),
            ("avx512+amx-bf16", DType::BF16, "avx512+amx-bf16"),
            ("avx512+amx-bf16", DType::F32, "avx512"),
            ("avx2", DType::BF16, "avx2"),
            ("sm_90+other", DType::F32, "sm_90+other"),
        ] {
            assert_eq!(instruction_set(device, compute), recorded);
        }
    }
}
