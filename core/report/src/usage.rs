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

/// The commands for the files in `directory`. Paths are absolute: a command works from any folder.
pub fn usages(directory: &Path, record: &Record) -> Vec<Usage> {
    let host = shell::own_name();
    let directory = &shell::absolute(directory);
    let run = shell::path(directory);
    let (adapter, model) = (directory.join("adapter"), directory.join("model"));
    let trained = [adapter.is_dir(), model.is_dir()];
    if trained == [false, false] {
        return vec![usage(
            "Go on where it stopped",
            format!("{host} train --resume {run}"),
        )];
    }
    let chat = if is_chat(record) { "--chat " } else { "" };
    let mut usages = vec![
        usage(
            "Ask it something",
            format!("{host} generate --run {run} {chat}--prompt \"...\""),
        ),
        usage(
            "Evaluate it on other rows",
            format!("{host} eval --run {run} --data FILE"),
        ),
    ];
    usages.extend(match trained {
        [true, _] => adapter_usages(directory, &adapter, record),
        _ => model_usages(&model),
    });
    usages
}

fn adapter_usages(directory: &Path, adapter: &Path, record: &Record) -> Vec<Usage> {
    let model = record.model_path();
    let base = shell::path(&model);
    let adapter_component = record.plugin("adapter").map(|plugin| &plugin.component);
    let rank = adapter_component
        .and_then(|name| record.value(&format!("adapter.{name}.rank"))?.as_u64())
        .map(|rank| format!(" --max-lora-rank {rank}"))
        .unwrap_or_default();
    vec![
        usage(
            "Merge it into the base model: a directory that transformers loads and llama.cpp converts",
            format!(
                "{} merge --run {} --out {}",
                shell::own_name(),
                shell::path(directory),
                shell::path(&directory.join("merged"))
            ),
        ),
        usage(
            "Load it with PEFT",
            format!(
                "from transformers import AutoModelForCausalLM, AutoTokenizer\n\
                 from peft import PeftModel\n\
                 base = AutoModelForCausalLM.from_pretrained({base})\n\
                 model = PeftModel.from_pretrained(base, {adapter})\n\
                 tokenizer = AutoTokenizer.from_pretrained({adapter})",
                base = python(&model),
                adapter = python(adapter)
            ),
        ),
        usage(
            "Serve it with vLLM",
            format!(
                "vllm serve {base} --enable-lora{rank} --lora-modules {}",
                shell::quoted(&format!("adapter={}", adapter.display()))
            ),
        ),
    ]
}

fn model_usages(model: &Path) -> Vec<Usage> {
    vec![
        usage(
            "Load it with transformers",
            format!(
                "from transformers import AutoModelForCausalLM, AutoTokenizer\n\
                 model = AutoModelForCausalLM.from_pretrained({model})\n\
                 tokenizer = AutoTokenizer.from_pretrained({model})",
                model = python(model)
            ),
        ),
        usage(
            "Serve it with vLLM",
            format!("vllm serve {}", shell::path(model)),
        ),
    ]
}

/// Whether the run's rows were conversations: its answers begin in the chat template.
fn is_chat(record: &Record) -> bool {
    let counts = record.data.counts.as_ref();
    counts.is_some_and(|counts| counts.trains.conversations > 0)
}

fn usage(purpose: &'static str, command: String) -> Usage {
    Usage { purpose, command }
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
        let directory = place.path().display();
        assert_eq!(only.command, format!("host train --resume {directory}"));
    }
}
