//! Configs of axolotl and TRL, and what becomes of their keys.

use toml::Value;

use super::*;

/// The value of a dotted key.
fn value<'a>(of: &'a Imported, key: &str) -> Option<&'a Value> {
    let mut names = key.split('.');
    let first = of.config.get(names.next()?)?;
    names.try_fold(first, |table, name| table.get(name))
}

fn keys(remarks: &[Remark]) -> Vec<&str> {
    remarks.iter().map(|one| one.key.as_str()).collect()
}

const QLORA: &str = "\
base_model: NousResearch/Llama-2-7b-hf
model_type: LlamaForCausalLM
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
val_set_size: 0.05
output_dir: ./outputs/qlora-out
adapter: qlora
lora_model_dir:
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
lr_scheduler: cosine
learning_rate: \"2e-4\"
bf16: auto
tf32: false
gradient_checkpointing: true
warmup_ratio: 0.1
evals_per_epoch: 4
weight_decay: 0.0
special_tokens:
  pad_token: <|end_of_text|>
";

#[test]
fn every_key_of_a_config_is_set_or_listed() {
    let imported = import(QLORA).expect("a config");
    let set = |key: &str| value(&imported, key).cloned();
    let plugins = Value::from(vec!["nf4", "lora"]);
    for (key, expected) in [
        ("plugins", plugins),
        ("model.path", "NousResearch/Llama-2-7b-hf".into()),
        ("model.recompute", "layer".into()),
        ("data.files", vec!["mhenrichsen/alpaca_2k_test"].into()),
        ("data.format", "alpaca".into()),
        ("data.eval_split", 0.05.into()),
        ("data.max_seq_len", 4096.into()),
        ("data.micro_batch", 2.into()),
        ("data.batch_size", 8.into()),
        ("data.pack_tokens", 8192.into()),
        ("adapter.lora.rank", 32.into()),
        ("adapter.lora.alpha", 16.0.into()),
        ("adapter.lora.dropout", 0.05.into()),
        ("adapter.lora.targets", "all-linear".into()),
        ("optim.name", "adamw".into()),
        ("optim.schedule", "cosine".into()),
        ("optim.learning_rate", 2e-4.into()),
        ("optim.warmup_ratio", 0.1.into()),
        ("run.epochs", 4.into()),
        ("run.out", "./outputs/qlora-out".into()),
    ] {
        assert_eq!(set(key), Some(expected), "{key}");
    }
    // An adapter's params stay f32.
    assert_eq!(set("model.params"), None);
    assert_eq!(keys(&imported.differs), ["sample_packing", "optimizer"]);
    assert_eq!(keys(&imported.lacks), ["evals_per_epoch", "special_tokens"]);
    assert_eq!(keys(&imported.needless), ["model_type", "tf32"]);
    let text = imported.to_toml("axolotl.yml");
    assert!(
        text.contains("# no counterpart: evals_per_epoch: set run.eval_every"),
        "{text}"
    );
    let read: toml::Table = toml::from_str(&text).expect("TOML");
    assert_eq!(read, imported.config);
}

#[test]
fn a_key_that_nobody_knows_is_listed() {
    let imported = import("base_model: a/b\nmystery: 3\nquiet: false\n").expect("a config");
    assert_eq!(keys(&imported.lacks), ["mystery"]);
    assert_eq!(keys(&imported.needless), ["quiet"]);
}

#[test]
fn names_of_trl_are_read() {
    let trl = "\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
use_peft: true
lora_r: 8
lora_target_modules: all-linear
load_in_4bit: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
num_train_epochs: 1
lr_scheduler_type: linear
optim: adamw_torch_fused
max_length: 1024
eval_steps: 100
report_to: [wandb]
";
    let imported = import(trl).expect("a config");
    let set = |key: &str| value(&imported, key).cloned();
    assert_eq!(set("plugins"), Some(Value::from(vec!["nf4", "lora"])));
    assert_eq!(set("model.path"), Some("Qwen/Qwen2.5-0.5B".into()));
    assert_eq!(set("data.files"), Some(vec!["trl-lib/Capybara"].into()));
    assert_eq!(set("data.batch_size"), Some(16.into()));
    assert_eq!(set("run.eval_every"), Some(100.into()));
    assert_eq!(set("optim.schedule"), Some("linear".into()));
    assert_eq!(keys(&imported.lacks), ["report_to"]);
}

#[test]
fn whole_models_are_trained_in_the_number_type_that_they_have_there() {
    let text = "base_model: a/b\noptimizer: adamw_bnb_8bit\nlora_r:\nbf16: true\nfp16:\n";
    let imported = import(text).expect("a config");
    assert_eq!(value(&imported, "model.params"), Some(&"bf16".into()));
    assert_eq!(value(&imported, "optim.name"), Some(&"adamw8bit".into()));
    assert_eq!(value(&imported, "plugins"), None);
}

#[test]
fn shards_and_their_offload_are_taken_over() {
    let text = "\
base_model: a/b
adapter: qlora
load_in_4bit: true
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_offload_params: true
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_use_orig_params: false
";
    let imported = import(text).expect("a config");
    let plugins = Value::from(vec!["nf4", "lora", "fsdp"]);
    assert_eq!(value(&imported, "plugins"), Some(&plugins));
    let set = |key: &str| value(&imported, &format!("sharding.fsdp.{key}")).cloned();
    assert_eq!(set("offload"), Some("params".into()));
    assert_eq!(set("strategy"), Some("shard_grad_op".into()));
}

#[test]
fn what_cannot_be_taken_over_is_refused_by_name() {
    let refused = |text: &str| import(text).expect_err(text).to_string();
    assert_eq!(
        refused("adapter: lora\n"),
        "expected the key `base_model`, found none"
    );
    assert_eq!(
        refused("base_model: a\nlora_r: many\nadapter: lora\n"),
        "`lora_r`: expected a whole number, found \"many\""
    );
    let images = refused("base_model: a\nprocessor_type: AutoProcessor\n");
    assert!(images.contains("a model of images and text"), "{images}");
    let broken = refused("base_model: [a\nb: 2\n");
    assert!(broken.contains("line 2"), "{broken}");
}
