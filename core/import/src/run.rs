//! The run, and how it is shared by several ranks.

use serde_json::Value;

use crate::ImportError;
use crate::imported::Making;
use crate::source::Source;

/// Takes their keys over.
///
/// # Errors
/// A value of the wrong kind.
pub fn set(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    if let Some((_, out)) = source.text("output_dir")? {
        making.set("run.out", out);
    }
    if let Some((key, epochs)) = source.number("num_epochs")? {
        making.set("run.epochs", (epochs.ceil() as i64).max(1));
        if epochs.fract() != 0.0 {
            making.differs(
                key,
                format!("{epochs} is rounded up: epochs are whole here"),
            );
        }
    }
    // A negative number of steps is none.
    if let Some((key, steps)) = source.number("max_steps")?
        && steps >= 1.0
    {
        making.set("run.max_steps", steps as i64);
        making.differs(key, "it stands beside run.epochs; the smaller holds");
    }
    for (key, ours) in [
        ("seed", "run.seed"),
        ("save_total_limit", "run.keep_last"),
        ("early_stopping_patience", "run.stop_after_worse"),
    ] {
        if let Some((_, value)) = source.whole(key)? {
            making.set(ours, value as i64);
        }
    }
    intervals(source, making)?;
    sharding(source, making)
}

/// How often is evaluated and saved: a number of steps; a share of them is not known before.
fn intervals(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    for (steps, each, ours) in [
        ("eval_steps", "evals_per_epoch", "run.eval_every"),
        ("save_steps", "saves_per_epoch", "run.save_every"),
    ] {
        if let Some((key, value)) = source.number(steps)? {
            if value >= 1.0 && value.fract() == 0.0 {
                making.set(ours, value as i64);
            } else {
                making.lacks(key, format!("a share of the steps; set {ours}, in steps"));
            }
        }
        if let Some((key, count)) = source.number(each)?
            && count > 0.0
        {
            making.lacks(
                key,
                format!("set {ours} to an epoch's steps / {count}; `host plan` has the steps"),
            );
        }
    }
    Ok(())
}

fn sharding(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    let names = source.take("fsdp");
    let config = source.take("fsdp_config");
    if names.is_none() && config.is_none() {
        if let Some((key, _)) = source.take("deepspeed") {
            making.lacks(
                key,
                "its file is not read; `fsdp` with sharding.fsdp.offload does what ZeRO-3 does",
            );
        }
        return Ok(());
    }
    making.plugin("fsdp");
    let mut offload = names.is_some_and(|(_, names)| names.to_string().contains("offload"));
    if let Some((key, Value::Object(config))) = config {
        for (option, value) in config {
            let name = format!("{key}.{option}");
            match option.trim_start_matches("fsdp_") {
                "offload_params" => offload |= value == true,
                "sharding_strategy" => match value.as_str() {
                    Some("FULL_SHARD") => {}
                    Some("SHARD_GRAD_OP") => {
                        making.set("sharding.fsdp.strategy", "shard_grad_op");
                    }
                    Some("HYBRID_SHARD") => making.set("sharding.fsdp.strategy", "hybrid"),
                    _ => making.lacks(name, format!("there is no strategy {value}")),
                },
                "activation_checkpointing" if value == true => {
                    making.set("model.recompute", "layer");
                }
                _ => making.needless(name, "units are the layers, and are gathered as needed"),
            }
        }
    }
    if offload {
        making.set("sharding.fsdp.offload", "params");
    }
    making.differs(
        "fsdp",
        "name the ranks with --ranks; data.batch_size counts the rows of all of them: multiply it by their number",
    );
    Ok(())
}
