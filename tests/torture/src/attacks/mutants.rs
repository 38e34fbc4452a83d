//! Mutated files of every format that the program reads: refused or read, in limited time and
//! memory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use espalier_system::files::hash_bytes;
use safetensors::SafeTensors;
use serde_json::json;

use crate::built::{golden, program};
use crate::ended::{Ended, bounded};
use crate::mutation::mutant;
use crate::random::Random;
use crate::suite::{Attack, Try};
use crate::training::{Training, copy};

/// Time limit for reading a small file.
const IN_TIME: Duration = Duration::from_secs(2);
/// Additional time of the program for a chat template.
const RENDERING: Duration = Duration::from_secs(3);
/// Time after which it is killed.
const LIMIT: Duration = Duration::from_secs(20);
/// Limit on the growth of memory, in addition to twice the file.
const GROWTH_KIB: u64 = 64 << 10;

/// A conversation, for which a template is read.
const CHAT: &str =
    r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
const TEMPLATE: &str = "{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] | trim }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}";
const CONFIG: &str = "[run]\nseed = 7\nmax_steps = 2\n[optim]\nlearning_rate = 1e-4\nbetas = [0.9, 0.99]\n[data]\nbatch_size = 2\nmax_seq_len = 32\n[adapter.lora]\nrank = 4\nalpha = 8\n";

/// A format, a file of it, and the command that reads it.
#[derive(Clone, Copy)]
pub struct Format {
    /// The file, in a folder of the try's own.
    file: &'static str,
    /// The command, run in that folder.
    words: &'static str,
}

const GENERATE: &str = "generate --quiet --threads 1 --prompt a --max-tokens 2 --model model";

/// Mutants of one format.
pub struct Mutants {
    format: Format,
    home: tempfile::TempDir,
    seed: Vec<u8>,
    /// Peak memory with the unchanged file.
    peak_kib: u64,
}

macro_rules! prepare {
    ($($name:ident: $file:literal, $words:expr;)*) => {$(
        /// The files that its command reads, created once.
        pub fn $name(_: u64) -> Result<Box<dyn Attack>, String> {
            Ok(Box::new(Mutants::new(Format { file: $file, words: $words })))
        }
    )*};
}

prepare! {
    safetensors: "model/model.safetensors", GENERATE;
    index: "sharded/model.safetensors.index.json", "generate --quiet --threads 1 --prompt a --max-tokens 2 --model sharded";
    config: "model/config.json", GENERATE;
    tokenizer: "model/tokenizer.json", "data show --model model --data text.jsonl";
    adapter_config: "adapter/adapter_config.json", "generate --quiet --threads 1 --prompt a --max-tokens 2 --model model --adapter adapter";
    adapter_weights: "adapter/adapter_model.safetensors", "generate --quiet --threads 1 --prompt a --max-tokens 2 --model model --adapter adapter";
    run_config: "own.toml", "train --quiet --threads 1 --plugins nf4,lora --model model --data rows.jsonl --out out --set run.max_steps=1 --config own.toml";
    jsonl: "chat.jsonl", "data doctor --model model --data chat.jsonl --set data.chat_template=./own.jinja";
    parquet: "chat.parquet", "data doctor --model model --data chat.parquet --set data.chat_template=./own.jinja";
    chat_template: "own.jinja", "data show --model model --data chat.jsonl --set data.chat_template=./own.jinja";
    checkpoint: "out/checkpoints/step-2/checkpoint.json", "resume";
    checkpoint_weights: "out/checkpoints/step-2/optimizer.safetensors", "resume";
}

impl Mutants {
    fn new(format: Format) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let place = home.path();
        copy(&golden("llama/tiny-trained"), &place.join("model"));
        copy(&golden("llama/adapter_trained_f32"), &place.join("adapter"));
        copy(&golden("llama/tiny-trained"), &place.join("sharded"));
        shard(&place.join("sharded"));
        let write = |name: &str, text: &str| fs::write(place.join(name), text).expect("written");
        write("own.jinja", TEMPLATE);
        write("own.toml", CONFIG);
        write("chat.jsonl", &format!("{CHAT}\n{CHAT}\n"));
        write("text.jsonl", "{\"text\": \"in the beginning\"}\n");
        write(
            "rows.jsonl",
            &format!("{}\n", json!({"input_ids": [5, 6, 7, 8, 9]})).repeat(6),
        );
        fs::copy(golden("parquet/chat.parquet"), place.join("chat.parquet")).expect("copied");
        if format.words == "resume" {
            let training = Training::new("--plugins lora --set run.max_steps=3");
            training.succeed("whole", "");
            training.unfinished("whole", "out");
            copy(training.folder.path(), &place.join("run"));
            copy(&training.path("out"), &place.join("out"));
        }
        let seed = fs::read(place.join(format.file)).expect("a file of that format");
        let mut mutants = Mutants {
            format,
            home,
            seed,
            peak_kib: 0,
        };
        let ended = mutants.read(&mutants.seed, "as-it-is");
        ended.as_success(format.file);
        mutants.peak_kib = ended.peak_kib;
        mutants
    }

    /// Reads `bytes` in place of the file.
    fn read(&self, bytes: &[u8], name: &str) -> Ended {
        let folder = self.home.path().join(name);
        let (file, home) = (self.format.file, self.home.path());
        fs::create_dir_all(&folder).expect("created");
        // Only changed files are copied.
        let top = file.split('/').next().expect("a path");
        for entry in fs::read_dir(home).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name();
            if name == top {
                let (from, to) = (entry.path(), folder.join(&name));
                if from.is_dir() {
                    copy(&from, &to)
                } else {
                    fs::copy(from, to).expect("copied");
                }
            } else if NAMES.iter().any(|known| name == *known) {
                std::os::unix::fs::symlink(entry.path(), folder.join(name)).expect("a link");
            }
        }
        fs::write(folder.join(file), bytes).expect("written");
        let ended = Ended::of(&mut bounded(&self.command(&folder)), LIMIT);
        fs::remove_dir_all(folder).expect("removed");
        ended
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(program());
        let words = match self.format.words {
            "resume" => {
                "train --quiet --threads 1 --data run/rows.jsonl --set model.compute=f32 --set run.epochs=2 --set data.batch_size=2 \
                 --set data.eval_split=1 --set run.eval_every=3 --set run.save_every=2 --model tiny --plugins lora \
                 --set run.max_steps=3 --out out --resume"
            }
            words => words,
        };
        let words = words.split_whitespace();
        match self.format.words {
            "resume" => {
                let tiny = golden("llama/tiny").to_string_lossy().into_owned();
                command.args(words.map(|word| {
                    if word == "tiny" {
                        tiny.clone()
                    } else {
                        word.to_owned()
                    }
                }));
            }
            _ => {
                command.args(words);
            }
        }
        command.current_dir(folder).env("XDG_DATA_HOME", folder);
        command
    }

    /// A mutant; half of the mutants of a checkpoint's description have a valid hash.
    fn mutant(&self, random: &mut Random) -> Vec<u8> {
        let bytes = mutant(&self.seed, random);
        if self.format.file.ends_with("checkpoint.json") && random.below(2) == 0 {
            return sealed(&bytes);
        }
        bytes
    }
}

/// Files in the command's folder beside the changed one.
const NAMES: [&str; 10] = [
    "model",
    "adapter",
    "sharded",
    "own.jinja",
    "own.toml",
    "chat.jsonl",
    "text.jsonl",
    "rows.jsonl",
    "chat.parquet",
    "run",
];

impl Attack for Mutants {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let bytes = self.mutant(&mut random);
        let file = self.format.file;
        let ended = self.read(&bytes, &a_try.name());
        let case = format!("a mutant of {file}");
        ended.as_documented(&case);
        // Processor time, since the machine may be busy.
        let limit = if file.ends_with(".jinja") {
            IN_TIME + RENDERING
        } else {
            IN_TIME
        };
        assert!(
            ended.worked <= limit,
            "{case}: {:?} of a processor: {}",
            ended.worked,
            ended.last_line()
        );
        let most = self.peak_kib + GROWTH_KIB + 2 * (bytes.len() as u64 >> 10);
        assert!(
            ended.peak_kib <= most,
            "{case}: {} KiB of memory, expected at most {most}: {}",
            ended.peak_kib,
            ended.last_line()
        );
    }
}

/// Makes the weights of a model one shard with an index.
fn shard(model: &Path) {
    let (from, shard) = (
        model.join("model.safetensors"),
        "model-00001-of-00001.safetensors",
    );
    let bytes = fs::read(&from).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let map: serde_json::Map<String, serde_json::Value> = tensors
        .names()
        .into_iter()
        .map(|name| (name.to_owned(), json!(shard)))
        .collect();
    let index = json!({"metadata": {"total_size": bytes.len()}, "weight_map": map});
    fs::write(
        model.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .expect("written");
    fs::rename(from, model.join(shard)).expect("moved");
}

/// A checkpoint's description with the hash of its contents.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let Some((second, _)) = lines.take(2).last() else {
        return bytes.to_vec();
    };
    let body = &bytes[second + 1..];
    let hash = hash_bytes(body);
    [format!("{{\n  \"sha256\": \"{hash}\",\n").as_bytes(), body].concat()
}
