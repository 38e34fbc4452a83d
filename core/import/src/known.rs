//! Keys that set nothing here: what for, and what of them is missed.

use serde_json::Value;

use crate::ImportError;
use crate::imported::Making;
use crate::source::Source;

/// Keys of models that this program cannot train.
const REFUSED: [(&str, &str); 3] = [
    ("processor_type", "a model of images and text"),
    (
        "lora_target_parameters",
        "adapters on the experts of a mixture",
    ),
    ("use_sonicmoe", "a mixture of experts"),
];

/// Keys that are not needed, by what they begin with.
const NEEDLESS: [(&str, &str); 25] = [
    ("model_type", "config.json says it"),
    ("is_", "config.json says it"),
    ("tokenizer_", "the model's files say it"),
    ("trust_remote_code", "no code of a model is run"),
    (
        "attn_implementation",
        "attention has one implementation for each backend",
    ),
    (
        "flash_attn_",
        "attention has one implementation for each backend",
    ),
    (
        "flash_attention",
        "attention has one implementation for each backend",
    ),
    (
        "sdp_attention",
        "attention has one implementation for each backend",
    ),
    (
        "xformers_attention",
        "attention has one implementation for each backend",
    ),
    ("tf32", "f32 is computed in f32"),
    ("torch_dtype", "model.compute is bf16"),
    (
        "gradient_checkpointing_kwargs",
        "it sets what torch does inside",
    ),
    (
        "dataset_prepared_path",
        "rows are read again, without a folder of tokens",
    ),
    ("dataset_processes", "all threads read"),
    ("dataloader_", "rows are read ahead"),
    (
        "skip_prepare_dataset",
        "rows are read again, without a folder of tokens",
    ),
    ("remove_unused_columns", "other fields of rows are not read"),
    ("logging_steps", "every step is recorded"),
    ("save_safetensors", "files are safetensors"),
    ("ddp_", "it sets what torch does inside"),
    ("strict", "every key of this file is listed"),
    ("local_rank", "ranks are numbered by the launcher"),
    ("eval_strategy", "run.eval_every says it"),
    ("save_strategy", "run.save_every says it"),
    ("do_", "`host train` trains"),
];

/// Keys without a counterpart, by what they begin with.
const LACKS: [(&str, &str); 12] = [
    (
        "wandb_",
        "there is no logging to Weights & Biases; metrics.jsonl and tensorboard/ have all numbers",
    ),
    (
        "mlflow_",
        "there is no logging to MLflow; metrics.jsonl has all numbers",
    ),
    (
        "comet_",
        "there is no logging to Comet; metrics.jsonl has all numbers",
    ),
    (
        "report_to",
        "metrics.jsonl and tensorboard/ have all numbers",
    ),
    ("hub_", "nothing is uploaded"),
    ("push_to_hub", "nothing is uploaded"),
    (
        "special_tokens",
        "the tokenizer's tokens are used; there is no padding",
    ),
    ("tokens", "the tokenizer's tokens are used"),
    (
        "resume_from_checkpoint",
        "name the run with `host train --resume DIR`",
    ),
    (
        "auto_resume_from_checkpoints",
        "name the run with `host train --resume DIR`",
    ),
    (
        "loss_watchdog_",
        "a loss that is not finite ends a run; no other does",
    ),
    ("plugins", "they are axolotl's"),
];

/// Refuses what this program cannot train.
///
/// # Errors
/// [`ImportError::NoCounterpart`].
pub fn refuse(source: &Source) -> Result<(), ImportError> {
    let found = REFUSED.iter().find(|(key, _)| source.has(key));
    found.map_or(Ok(()), |&(key, what)| {
        Err(ImportError::NoCounterpart {
            key: key.to_owned(),
            what,
        })
    })
}

/// Says something of each key that is left.
pub fn remark(source: &mut Source, making: &mut Making) {
    for (key, value) in source.rest() {
        let of = |list: &[(&str, &'static str)]| {
            let found = list.iter().find(|(begin, _)| key.starts_with(begin));
            found.map(|&(_, why)| why)
        };
        // What is switched off is not missed.
        let is_off = value == false || value == 0;
        if let Some(why) = of(&NEEDLESS) {
            making.needless(key, why);
        } else if let Some(why) = of(&LACKS) {
            if is_off {
                making.needless(key, "it is off");
            } else {
                making.lacks(key, why);
            }
        } else if is_off || matches!(&value, Value::Array(of) if of.is_empty()) {
            making.needless(key, "it is off");
        } else {
            making.lacks(key, "the key is not known here");
        }
    }
}
