//! Runs and comparisons that version 0.1.0 wrote: this program resumes them to the same bits, and
//! reads them.
// Their plugins were linked; a library with the same name is another plugin.
#![allow(clippy::print_stdout)] // Figures for the test log.
#![cfg(feature = "embedded")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_system::files::hash_bytes;
use espalier_torture::training;
use serde_json::{Map, Value as Json, json};
use training::{EXACT, copy, files, last_line, names, refused};

/// Instruction sets with the same bits as the machine that made the runs.
const SAME_BITS: [&str; 2] = ["avx512", "avx2"];

/// A folder with the files of an earlier program, and the rows and models under the names it used.
struct Earlier {
    folder: tempfile::TempDir,
    command: String,
    words: Vec<String>,
    expected: Json,
}

impl Earlier {
    fn of(name: &str) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let (runs, trained) = (golden.join("runs-0.1"), golden.join("llama/tiny-trained"));
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["chat.jsonl", "text.jsonl", "template.jinja"] {
            fs::copy(runs.join(file), folder.path().join(file)).expect("copied");
        }
        for model in ["model", "small"] {
            copy(&trained, &folder.path().join(model));
        }
        copy(&runs.join("small"), &folder.path().join("small"));
        copy(&runs.join(name).join("out"), &folder.path().join("out"));
        let expected = read(&runs.join(name).join("expected.json"));
        let words = expected["words"].as_array().expect("words");
        let word = |word: &Json| word.as_str().expect("a word").to_owned();
        Earlier {
            command: word(&expected["command"]),
            words: words.iter().map(word).collect(),
            folder,
            expected,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The host in the folder with the arguments `line`.
    fn host(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(self.folder.path());
        command.env("XDG_DATA_HOME", self.path("user"));
        command.args(line.split_whitespace());
        command
    }

    /// Resumes with the command line of that version, and `more`.
    fn resume(&self, more: &str) -> Output {
        let mut command = self.host(&self.command);
        command.args(&self.words).args(["--out", "out", "--resume"]);
        command.args(more.split_whitespace());
        command.output().expect("the host starts")
    }

    fn succeed(&self, more: &str) {
        let output = self.resume(more);
        assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    }

    /// Expects the run in `directory` to match `expected`, bit for bit if this machine computes
    /// like the original one.
    fn check(&self, directory: &str, expected: &Json) {
        let run = self.path("out").join(directory);
        let here = read(&run.join("run.json"))["instruction_set"].clone();
        let there = &self.expected["instruction_set"];
        let same = |set: &Json| SAME_BITS.iter().any(|same| set == same);
        let metrics = exact_metrics(&run);
        if same(&here) && same(there) {
            assert_eq!(json!(metrics), expected["metrics"], "{directory}");
            let hashes = |(name, bytes)| (name, Json::from(hash_bytes(bytes)));
            let saved = ["adapter", "model"].map(|name| run.join(name));
            let saved = saved.iter().find(|saved| saved.is_dir());
            let found = files(saved.expect("an adapter or a model"));
            // Earlier versions exported no tokenizer and no chat template beside an adapter.
            let known = |name: &str| expected["files"].get(name).is_some();
            let later = |name: &str| name.starts_with("tokenizer") || name == "chat_template.jinja";
            let found: Map<String, Json> = found
                .iter()
                .filter(|(name, _)| known(name) || !later(name))
                .map(|(name, bytes)| hashes((name.clone(), bytes)))
                .collect();
            assert_eq!(Json::Object(found), expected["files"], "{directory}");
            return;
        }
        println!("made with {there}, run with {here}: held to 1 %, not to the bit");
        let lines = expected["metrics"].as_array().expect("lines");
        assert_eq!(metrics.len(), lines.len(), "{directory}");
        for (found, line) in metrics.iter().zip(lines) {
            for key in ["step", "trained_tokens", "loss", "eval_loss"] {
                let [found, line] =
                    [found.get(key), line.get(key)].map(|v| v.and_then(Json::as_f64));
                let close = |found: f64, line: f64| (found - line).abs() <= 0.01 * line.abs();
                let agree = match (found, line) {
                    (Some(found), Some(line)) => close(found, line),
                    (found, line) => found == line,
                };
                assert!(agree, "{directory}: {key} is {found:?}, expected {line:?}");
            }
        }
    }
}

fn read(path: &Path) -> Json {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of each line of metrics that do not depend on the clock, as in `expected.json`.
fn exact_metrics(run: &Path) -> Vec<Map<String, Json>> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines = text.lines().map(|line| {
        let line: Map<String, Json> = serde_json::from_str(line).expect("a line of metrics");
        line
    });
    let lines = lines.filter(|line| !line.contains_key("swap"));
    lines
        .map(|mut line| {
            line.retain(|key, _| EXACT.contains(&key.as_str()));
            line
        })
        .collect()
}

/// All files below a directory except reports, which are rewritten.
fn all_files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in names(directory) {
        let path = directory.join(&name);
        match path.is_dir() {
            true => all.extend(all_files(&path)),
            false if name.starts_with("report.") => {}
            false => drop(all.insert(path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    all
}

#[test]
fn checkpoints_of_every_kind_resume_to_the_original_bits() {
    for name in ["lora-nf4", "lora-hqq", "full", "fsdp", "swapped"] {
        let earlier = Earlier::of(name);
        earlier.succeed("");
        earlier.check("", &earlier.expected["run"]);
        let run = read(&earlier.path("out/run.json"));
        // It remains a run of that version: resuming again finds the same values.
        assert_eq!(run["config_version"], 1, "{name}");
        assert_eq!(run["config"]["data"]["train_on"], "completion", "{name}");
        earlier.succeed("");
    }
}

#[test]
fn command_line_options_are_compared_with_the_original_values() {
    let earlier = Earlier::of("lora-nf4");
    let words = "data.train_on: \"completion\" -> \"all\"";
    let more = "--set data.train_on=all";
    refused(&earlier.resume(more), 2, words, more);
    earlier.succeed("--set data.train_on=completion");
    earlier.check("", &earlier.expected["run"]);
}

#[test]
fn a_checkpoint_of_another_version_of_the_program_resumes() {
    let earlier = Earlier::of("lora-hqq");
    let path = earlier.path("out/checkpoints/step-3/checkpoint.json");
    let mut manifest = read(&path);
    let fields = manifest.as_object_mut().expect("an object");
    fields.shift_remove("sha256");
    fields["run"]["espalier"] = json!("0.0.9");
    for plugin in fields["run"]["plugins"].as_array_mut().expect("plugins") {
        plugin["version"] = json!("0.0.9");
        plugin["abi"] = json!([0, 1]);
    }
    let text = format!("{manifest:#}\n");
    let body = text.strip_prefix("{\n").expect("an object");
    let sealed = format!(
        "{{\n  \"sha256\": \"{}\",\n{body}",
        hash_bytes(body.as_bytes())
    );
    fs::write(&path, sealed).expect("written");
    earlier.succeed("");
    earlier.check("", &earlier.expected["run"]);
    let resumptions = &read(&earlier.path("out/run.json"))["resumptions"];
    let expected = json!([{"from_step": 3, "espalier": env!("CARGO_PKG_VERSION")}]);
    assert_eq!(resumptions, &expected);
}

#[test]
fn a_finished_earlier_run_is_unchanged_reported_and_generates_the_same_text() {
    let earlier = Earlier::of("finished");
    earlier.check("", &earlier.expected["run"]);
    let before = all_files(&earlier.path("out"));
    earlier.succeed("");
    let output = earlier
        .host("report out")
        .output()
        .expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    assert!(earlier.path("out/report.html").is_file());
    assert!(before == all_files(&earlier.path("out")), "a file changed");
    let mut generate = earlier.host("generate --run out --max-tokens 24 --temperature 0 --prompt");
    let prompt = earlier.expected["prompt"].as_str().expect("a prompt");
    let output = generate.arg(prompt).output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(Json::from(printed), earlier.expected["generated"]);
}

/// It has no hashes of its files, and no checkpoint.
#[test]
fn a_finished_earlier_run_is_accepted_with_a_note_and_a_damaged_one_is_refused() {
    let earlier = Earlier::of("finished");
    let loud = |earlier: &Earlier| {
        let mut command = earlier.host(&earlier.command);
        command.args(earlier.words.iter().filter(|word| *word != "--quiet"));
        command.args(["--out", "out", "--resume"]);
        command.output().expect("the host starts")
    };
    let output = loud(&earlier);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(
        printed.contains("out/adapter: its run recorded no hashes"),
        "{printed}"
    );
    let weights = earlier.path("out/adapter/adapter_model.safetensors");
    let whole = fs::read(&weights).expect("weights");
    for bytes in [&whole[..whole.len() - 1], &whole[..5], &[]] {
        fs::write(&weights, bytes).expect("written");
        let words = "out is not as its run left it: adapter: it cannot be read | another --out";
        refused(&loud(&earlier), 4, words, "cut");
    }
    fs::remove_file(&weights).expect("removed");
    refused(
        &loud(&earlier),
        4,
        "adapter_model.safetensors | another --out",
        "removed",
    );
}

#[test]
fn a_finished_earlier_comparison_is_unchanged_and_reported() {
    let earlier = Earlier::of("compared");
    let before = all_files(&earlier.path("out/arms"));
    let compared = read(&earlier.path("out/compare.json"));
    earlier.succeed("");
    let output = earlier
        .host("report out")
        .output()
        .expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let report = fs::read_to_string(earlier.path("out/report.html")).expect("a report");
    assert!(
        report.contains("int8") && report.contains("nf4"),
        "{report}"
    );
    assert!(
        before == all_files(&earlier.path("out/arms")),
        "a file changed"
    );
    let after = read(&earlier.path("out/compare.json"));
    // A newer program has other defaults, so the command for an arm has more options; its linked
    // plugins have its own interface.
    let lasting = |record: &Json| {
        let mut arms = record["arms"].clone();
        for arm in arms.as_array_mut().expect("arms") {
            let command = arm["command"].take();
            let command = command.as_str().expect("a command");
            assert!(command.starts_with("host train --plugins"), "{command}");
            for plugin in arm["plugins"].as_array_mut().expect("plugins") {
                assert_eq!(plugin["sha256"], Json::Null, "it is linked");
                plugin["abi"].take();
            }
        }
        arms
    };
    assert_eq!(lasting(&after), lasting(&compared));
    for key in ["yardstick", "seeds", "schedule", "eval_only"] {
        assert_eq!(after[key], compared[key], "{key}");
    }
    assert_eq!(after["config_version"], 1);
}

#[test]
fn an_interrupted_earlier_comparison_resumes_to_the_original_bits() {
    let earlier = Earlier::of("interrupted");
    earlier.succeed("");
    let runs = earlier.expected["runs"].as_object().expect("runs");
    assert_eq!(runs.len(), 6);
    for (directory, expected) in runs {
        earlier.check(directory, expected);
        let run = read(&earlier.path("out").join(directory).join("run.json"));
        assert_eq!(
            run["config"]["data"]["train_on"], "completion",
            "{directory}"
        );
    }
}
