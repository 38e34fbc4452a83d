//! The files of a run -> the command lines that use them.

use std::path::Path;

use espalier_system::shell;
use serde::Serialize;

use super::record::Record;

/// A command line and its purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Its purpose.
    pub purpose: &'static str,
    /// The command, or lines of Python.
    pub command: String,
}

/// The commands for the files in `directory`; their paths are relative to the run's working
/// directory.
pub fn usages(directory: &Path, record: &Record) -> Vec<Usage> {
    let mut usages = vec![usage(
        "Ask it something",
        format!("host generate --run {} --prompt \"...\"", quoted(directory)),
    )];
    if directory.join("adapter").is_dir() {
        usages.extend(adapter_usages(directory, record));
    } else if directory.join("model").is_dir() {
        usages.extend(model_usages(&directory.join("model"), record));
    } else {
        return vec![usage(
            "Go on where it stopped, with the arguments of the run",
            format!("host train --resume --out {} ...", quoted(directory)),
        )];
    }
    usages
}

fn adapter_usages(directory: &Path, record: &Record) -> Vec<Usage> {
    let base = quoted(&record.model.path);
    let adapter = quoted(&directory.join("adapter"));
    let plugins = match record.plugin("quantizer") {
        Some(quantizer) => format!(" --plugins {}", quantizer.component),
        None => String::new(),
    };
    let adapter_component = record.plugin("adapter").map(|plugin| &plugin.component);
    let rank = adapter_component
        .and_then(|name| record.value(&format!("adapter.{name}.rank"))?.as_u64())
        .map(|rank| format!(" --max-lora-rank {rank}"))
        .unwrap_or_default();
    vec![
        usage(
            "Evaluate it on other rows",
            format!("host eval --model {base} --adapter {adapter}{plugins} --data FILE"),
        ),
        usage(
            "Merge it into the base model: a directory that transformers loads and llama.cpp converts",
            format!(
                "host merge --model {base} --adapter {adapter} --out {}",
                quoted(&directory.join("merged"))
            ),
        ),
        usage(
            "Load it with PEFT",
            format!(
                "from transformers import AutoModelForCausalLM\n\
                 from peft import PeftModel\n\
                 base = AutoModelForCausalLM.from_pretrained({})\n\
                 model = PeftModel.from_pretrained(base, {})",
                python(&record.model.path),
                python(&directory.join("adapter"))
            ),
        ),
        usage(
            "Serve it with vLLM",
            format!(
                "vllm serve {base} --enable-lora{rank} --lora-modules {}",
                shell::quoted(&format!("adapter={}", directory.join("adapter").display()))
            ),
        ),
    ]
}

fn model_usages(model: &Path, record: &Record) -> Vec<Usage> {
    let quantizer = match record.plugin("quantizer") {
        Some(quantizer) => format!(" --plugins {}", quantizer.component),
        None => String::new(),
    };
    let shown = quoted(model);
    vec![
        usage(
            "Evaluate it on other rows",
            format!("host eval --model {shown}{quantizer} --data FILE"),
        ),
        usage(
            "Load it with transformers",
            format!(
                "from transformers import AutoModelForCausalLM\n\
                 model = AutoModelForCausalLM.from_pretrained({})",
                python(model)
            ),
        ),
        usage("Serve it with vLLM", format!("vllm serve {shown}")),
    ]
}

fn usage(purpose: &'static str, command: String) -> Usage {
    Usage { purpose, command }
}

fn quoted(path: &Path) -> String {
    shell::quoted(&path.display().to_string())
}

/// A path as Python takes it; JSON's strings are Python's.
fn python(path: &Path) -> String {
    serde_json::Value::from(path.display().to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_result_can_be_resumed() {
        let place = tempfile::tempdir().expect("a folder");
        let usages = usages(place.path(), &Record::default());
        let [only] = &usages[..] else {
            panic!("one line")
        };
        assert!(only.command.contains("--resume"));
    }
}
