//! `--run DIR` and the commands that a run prints: all that is on record, from any folder.

mod place;

use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use espalier_torture::built::golden;
use place::{RunFolder, copy_directory};
use serde_json::{Value as Json, json};
use training::{Training, files, messages};

/// A template without special tokens, other than the tokenizer's own.
const TEMPLATE: &str = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}\
     {% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

/// A run with relative paths of everything, and a folder elsewhere.
struct Chat {
    place: RunFolder,
    elsewhere: tempfile::TempDir,
}

impl Chat {
    fn new(more: &str) -> Self {
        let place = RunFolder::new();
        copy_directory("tiny", &place.path("model"));
        place.write("own.jinja", TEMPLATE);
        let row = |answer: &str| {
            let turn = |role: &str, content: &str| json!({"role": role, "content": content});
            json!({"messages": [turn("user", "a tree?"), turn("assistant", answer)]}).to_string()
        };
        place.write(
            "train.jsonl",
            &format!("{}\n{}\n", row("an oak"), row("a pine")),
        );
        place.write(
            "held.jsonl",
            &format!("{}\n{}\n", row("a fir"), row("the beech")),
        );
        let words = format!(
            "train --quiet --threads 1 --model model --data train.jsonl --out runs/out \
             --set data.eval_files=held.jsonl --set data.chat_template=own.jinja \
             --set run.epochs=3 --set model.compute=f32 {more}"
        );
        place.host(&words).succeeded();
        let elsewhere = tempfile::tempdir().expect("a folder");
        Chat { place, elsewhere }
    }

    fn run(&self) -> String {
        self.place.path("runs/out").display().to_string()
    }

    /// Runs `line` in a shell in the other folder, and expects success.
    fn shell(&self, line: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_host"));
        let folder = program.parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).current_dir(self.elsewhere.path());
        shell.env("PATH", format!("{folder}:{path}"));
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", messages(&output));
        output
    }

    /// The loss of `host eval --run` on the run's held-out file.
    fn loss(&self, more: &str) -> f64 {
        let line = format!(
            "host eval --quiet --json --threads 1 --run {} {more}",
            self.run()
        );
        let found: Json = serde_json::from_slice(&self.shell(&line).stdout).expect("JSON");
        found["loss"].as_f64().expect("a loss")
    }

    /// The run's own last held-out loss.
    fn last_loss(&self) -> f64 {
        let metrics = self.place.read("runs/out/metrics.jsonl");
        let lines = metrics
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
        let losses: Vec<f64> = lines
            .filter_map(|line| line["eval_loss"].as_f64())
            .collect();
        *losses.last().expect("an evaluation")
    }
}

#[test]
fn a_run_is_evaluated_with_its_own_loss_from_another_folder() {
    for kind in [
        "--plugins nf4,lora",
        "--plugins nf4,lora --set model.init=random --set run.seed=7",
        "--plugins gptq,lora --set quantizer.gptq.group_size=16",
        "",
        "--plugins hqq --set model.train_only=*layers.1.*",
    ] {
        let chat = Chat::new(kind);
        assert_eq!(chat.loss(""), chat.last_loss(), "{kind}");
        let held = chat.place.path("held.jsonl").display().to_string();
        assert_eq!(
            chat.loss(&format!("--data {held}")),
            chat.last_loss(),
            "{kind}"
        );
        let line = format!(
            "host generate --quiet --chat --prompt 'a tree?' --max-tokens 4 --run {}",
            chat.run()
        );
        let there = chat.shell(&line).stdout;
        let here = chat
            .shell(&format!("cd {}; {line}", chat.place.path(".").display()))
            .stdout;
        assert!(there == here, "{kind}");
    }
}

#[test]
fn every_command_of_a_report_works_as_it_is_printed_from_another_folder() {
    for kind in ["--plugins nf4,lora", ""] {
        let chat = Chat::new(kind);
        let report: Json =
            serde_json::from_str(&chat.place.read("runs/out/report.json")).expect("a report");
        let held = chat.place.path("held.jsonl").display().to_string();
        let usages = report["usages"].as_array().expect("a list");
        let commands: Vec<&str> = usages
            .iter()
            .filter_map(|one| one["command"].as_str())
            .collect();
        let ours = commands
            .iter()
            .filter(|command| command.starts_with("host "));
        let mut count = 0;
        for command in ours {
            chat.shell(&command.replace("FILE", &held).replace("...", "a tree?"));
            count += 1;
        }
        assert_eq!(count, if kind.is_empty() { 2 } else { 3 }, "{commands:?}");
        // Python and vLLM get paths that are found from everywhere, too.
        let root = chat.place.path(".").display().to_string();
        let root = root.trim_end_matches('.');
        let others = commands
            .iter()
            .filter(|command| !command.starts_with("host "));
        assert!(others.clone().count() >= 2);
        assert!(
            others.clone().all(|command| command.contains(root)),
            "{commands:?}"
        );
        if !kind.is_empty() {
            let merged = chat.place.path("runs/out/merged/config.json");
            assert!(merged.is_file(), "host merge --run wrote none");
        }
    }
}

#[test]
fn what_a_run_prints_last_works_from_another_folder() {
    let training = Training::new("--plugins lora");
    let relative = |more: &str| {
        let whole = training.command("out", more);
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(training.folder.path());
        let out = training.path("out").display().to_string();
        let words = whole
            .get_args()
            .map(|word| word.to_string_lossy().into_owned());
        command.args(words.map(|word| if word == out { "out".to_owned() } else { word }));
        command.output().expect("the host starts")
    };
    let output = relative("");
    assert!(output.status.success(), "{}", messages(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let next = text.lines().find_map(|line| line.strip_prefix("next "));
    let next = next.expect("the next command").trim().replace("...", "a");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-ec", &format!("{next} --max-tokens 1")]);
    let output = shell
        .current_dir(elsewhere.path())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{next}: {}", messages(&output));
    // `host report` takes the run as other commands do.
    for words in ["report --run", "report"] {
        let mut report = Command::new(env!("CARGO_BIN_EXE_host"));
        report.args(words.split(' ')).arg(training.path("out"));
        let output = report.output().expect("the host starts");
        assert!(output.status.success(), "{words}: {}", messages(&output));
    }
}

#[test]
fn an_adapter_has_the_tokenizer_and_the_template_of_its_run() {
    let chat = Chat::new("--plugins lora");
    let saved = files(&chat.place.path("runs/out/adapter"));
    let names: Vec<&str> = saved.keys().map(String::as_str).collect();
    let expected = [
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names, expected);
    assert_eq!(saved["chat_template.jinja"], TEMPLATE.as_bytes());
    let model = files(&golden("llama/tiny"));
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        assert!(saved[name] == model[name], "{name}");
    }
    // A whole model has the template, too.
    let chat = Chat::new("");
    let template = chat.place.read("runs/out/model/chat_template.jinja");
    assert_eq!(template, TEMPLATE);
    // A checkpoint holds the adapter alone.
    let chat = Chat::new("--plugins lora --set data.chat_template=chatml");
    let names = chat.place.names("runs/out/checkpoints/step-3/adapter");
    assert_eq!(names, "adapter_config.json adapter_model.safetensors");
    let template = chat.place.read("runs/out/adapter/chat_template.jinja");
    assert!(template.contains("<|im_start|>"), "{template}");
}

#[test]
fn a_run_is_used_where_its_project_was_moved() {
    let chat = Chat::new("--plugins nf4,lora");
    let expected = chat.last_loss();
    let moved = chat.elsewhere.path().join("moved");
    fs::create_dir(&moved).expect("created");
    for name in ["model", "runs", "own.jinja", "held.jsonl"] {
        fs::rename(chat.place.path(name), moved.join(name)).expect("moved");
    }
    let line = "cd moved; host eval --quiet --json --threads 1 --run runs/out";
    let found: Json = serde_json::from_slice(&chat.shell(line).stdout).expect("JSON");
    assert_eq!(found["loss"].as_f64(), Some(expected));
}
