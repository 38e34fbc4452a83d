//! Optimizer and schedule.

use crate::ImportError;
use crate::imported::Making;
use crate::source::Source;

/// Takes their keys over.
///
/// # Errors
/// A value of the wrong kind.
pub fn set(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    if let Some((key, name)) = source.text("optimizer")? {
        optimizer(key, &name, making);
    }
    schedule(source, making)?;
    for (key, ours) in [
        ("learning_rate", "optim.learning_rate"),
        ("weight_decay", "optim.weight_decay"),
        ("adam_epsilon", "optim.eps"),
        ("max_grad_norm", "optim.clip_norm"),
        ("cosine_min_lr_ratio", "optim.floor"),
        ("warmup_ratio", "optim.warmup_ratio"),
    ] {
        if let Some((_, value)) = source.number(key)? {
            making.set(ours, value);
        }
    }
    if let Some((_, steps)) = source.whole("warmup_steps")? {
        making.set("optim.warmup_steps", steps as i64);
    }
    let first = source.number("adam_beta1")?.map(|(_, beta)| beta);
    let second = source.number("adam_beta2")?.map(|(_, beta)| beta);
    if first.is_some() || second.is_some() {
        let betas = vec![first.unwrap_or(0.9), second.unwrap_or(0.999)];
        making.set("optim.betas", betas);
    }
    Ok(())
}

fn optimizer(key: String, name: &str, making: &mut Making) {
    match name {
        "adamw_bnb_8bit" | "adamw_8bit" => making.set("optim.name", "adamw8bit"),
        "paged_adamw_8bit" => {
            making.set("optim.name", "adamw8bit");
            paged(key, making);
        }
        "adamw_torch" | "adamw_torch_fused" | "adamw_hf" | "adamw_apex_fused" => {
            making.set("optim.name", "adamw");
        }
        "paged_adamw_32bit" | "paged_adamw" => {
            making.set("optim.name", "adamw");
            paged(key, making);
        }
        "sgd" => making.set("optim.name", "sgd"),
        other => making.lacks(
            key,
            format!("there is no optimizer `{other}`; adamw is used"),
        ),
    }
}

fn paged(key: String, making: &mut Making) {
    making.differs(
        key,
        "its state is not paged; with `fsdp`, sharding.fsdp.offload = \"params+optimizer\" keeps it in the host's memory",
    );
}

fn schedule(source: &mut Source, making: &mut Making) -> Result<(), ImportError> {
    match source.text("lr_scheduler")? {
        Some((_, name)) if ["cosine", "linear", "constant"].contains(&name.as_str()) => {
            making.set("optim.schedule", name);
        }
        Some((_, name)) if name == "constant_with_warmup" => {
            making.set("optim.schedule", "constant");
        }
        Some((key, name)) => {
            making.lacks(
                key,
                format!("there is no schedule `{name}`; cosine is used"),
            );
            making.set("optim.schedule", "cosine");
        }
        // The default there.
        None => making.set("optim.schedule", "cosine"),
    }
    Ok(())
}
