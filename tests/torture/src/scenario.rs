//! One small use of the program -> its undisturbed result, and whether it reaches that result after
//! an attack.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;

use crate::built::{faults, golden, program};
use crate::ended::{Ended, PATIENCE};
use crate::training::{Training, exact, names};

/// A use of the program.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Its name in the suite's lines.
    pub name: &'static str,
    /// The command.
    command: &'static str,
    /// Its arguments.
    words: &'static str,
}

/// The uses that attacks choose from.
const USES: [Use; 8] = [
    Use {
        name: "nf4-lora",
        command: "train",
        words: "--plugins nf4,lora --set adapter.lora.dropout=0.1 --set run.keep_last=1 --set run.max_steps=5",
    },
    Use {
        name: "full",
        command: "train",
        words: "--set run.max_steps=4 --set run.keep_last=1",
    },
    Use {
        name: "hqq-lora",
        command: "train",
        words: "--plugins hqq,lora",
    },
    Use {
        name: "fsdp",
        command: "train",
        words: "--plugins nf4,lora,fsdp --ranks 2 --set run.keep_last=2",
    },
    Use {
        name: "ddp",
        command: "train",
        words: "--plugins lora,ddp --ranks 2",
    },
    Use {
        name: "compare",
        command: "compare",
        words: "--plugins lora --arms nf4 --seeds 1 --set run.max_steps=4",
    },
    Use {
        name: "merge",
        command: "merge",
        words: "--adapter",
    },
    Use {
        name: "quantize",
        command: "quantize",
        words: "--plugins nf4",
    },
];

/// Ways to train with state or an order of their own, from which attacks choose, too.
const MODES: [Use; 12] = [
    Use {
        name: "in-backward",
        command: "train",
        words: "--set optim.in_backward=true --set optim.name=sgd --set optim.momentum=0.9 --set optim.clip_norm=0.0 --set data.micro_batch=2 --set run.max_steps=4",
    },
    Use {
        name: "in-backward-fsdp",
        command: "train",
        words: "--plugins fsdp --ranks 2 --set optim.in_backward=true --set optim.name=adamw8bit --set optim.clip_norm=0.0 --set run.max_steps=4 --set run.keep_last=1",
    },
    Use {
        name: "in-backward-offload",
        command: "train",
        words: "--plugins fsdp --ranks 2 --set sharding.fsdp.offload=\"params+optimizer\" --set optim.in_backward=true --set optim.clip_norm=0.0 --set run.max_steps=4 --set run.keep_last=1",
    },
    Use {
        name: "held-fetch",
        command: "train",
        words: "--plugins nf4,lora,fsdp --ranks 2 --set sharding.fsdp.micro_batches_per_fetch=2 --set data.micro_batch=2 --set run.max_steps=4",
    },
    Use {
        name: "bf16-alone",
        command: "train",
        words: "--set model.compute=\"bf16\" --set model.params=\"bf16\" --set model.gradients=\"bf16\" --set optim.state=\"bf16\" --set optim.stochastic_rounding=true --set run.max_steps=4 --set run.keep_last=1",
    },
    Use {
        name: "adamw8bit",
        command: "train",
        words: "--set optim.name=adamw8bit --set run.max_steps=4 --set run.keep_last=1",
    },
    Use {
        name: "dora",
        command: "train",
        words: "--plugins hqq,dora --set adapter.dora.dropout=0.1",
    },
    Use {
        name: "ia3",
        command: "train",
        words: "--plugins nf4,ia3",
    },
    Use {
        name: "train-only",
        command: "train",
        words: "--plugins nf4 --set model.train_only=[\"model.layers.1.*\"] --set run.max_steps=4",
    },
    Use {
        name: "modules-to-save",
        command: "train",
        words: "--plugins nf4,lora --set adapter.lora.modules_to_save=[\"embed_tokens\",\"lm_head\",\"input_layernorm\"] --set adapter.lora.learning_rate_ratio=4",
    },
    Use {
        name: "keep-best",
        command: "train",
        words: "--plugins nf4,lora --set run.keep_best=true --set run.eval_every=1 --set optim.learning_rate=0.05 --set run.keep_last=1",
    },
    Use {
        name: "stop-after-worse",
        command: "train",
        words: "--plugins lora --set run.stop_after_worse=2 --set run.eval_every=1 --set optim.learning_rate=0.05 --set run.epochs=9",
    },
];

/// All uses.
fn uses() -> impl Iterator<Item = Use> {
    USES.into_iter().chain(MODES)
}

/// Those that are ways to train beside the usual.
pub fn modes() -> impl Iterator<Item = Use> {
    MODES.into_iter()
}

/// The use called `name`.
///
/// # Panics
/// If there is none.
pub fn named(name: &str) -> Use {
    uses()
        .find(|of| of.name == name)
        .expect("a use of that name")
}

/// Results that must be equal bit for bit, by path: files unchanged, metrics by their exact values.
pub type Leftover = BTreeMap<String, Vec<u8>>;

/// Names in an output directory that hold times, or the number of resumptions.
const VARIES: [&str; 9] = [
    "run.json",
    "report.html",
    "report.json",
    "compare.json",
    "compare.html",
    "base.json",
    "log.txt",
    "tensorboard",
    "swap",
];

/// A use that was made once, undisturbed, with every file call counted.
pub struct Scenario {
    /// The use.
    pub of: Use,
    /// Its folder, rows and words.
    pub training: Training,
    /// Its result.
    pub whole: Leftover,
    /// Every call on a file of the output in order, as `NAME PATH`.
    pub calls: Vec<String>,
    /// Its duration.
    pub takes: Duration,
}

impl Scenario {
    /// Makes every use once.
    ///
    /// # Panics
    /// If one fails undisturbed.
    pub fn of_all() -> Vec<Self> {
        uses().map(Scenario::new).collect()
    }

    /// Makes the use once.
    ///
    /// # Panics
    /// If it fails undisturbed.
    pub fn new(of: Use) -> Self {
        Scenario::with(of, "")
    }

    /// Like [`Scenario::new`], with more arguments.
    ///
    /// # Panics
    /// As [`Scenario::new`].
    pub fn with(of: Use, more: &str) -> Self {
        let training = Training::new(&format!("{} {more}", of.words));
        let made = Scenario {
            of,
            training,
            whole: Leftover::new(),
            calls: Vec::new(),
            takes: Duration::ZERO,
        };
        let log = made.training.path("calls");
        let mut command = made.faulty("whole", "", 0, "eio");
        let ended = Ended::of(command.env("FAULT_LOG", &log), PATIENCE);
        ended.as_success(of.name);
        let text = fs::read_to_string(log).expect("the calls");
        let calls = text.lines().map(str::to_owned).collect();
        let whole = leftover(&made.path("whole"));
        assert!(!whole.is_empty(), "{}: it left nothing", of.name);
        Scenario {
            whole,
            calls,
            takes: ended.took,
            ..made
        }
    }

    /// Whether `--resume` resumes it; otherwise it is repeated.
    pub fn resumes(&self) -> bool {
        ["train", "compare"].contains(&self.of.command)
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.training.path(name)
    }

    /// The command that writes to `out`, with the arguments `more`.
    pub fn command(&self, out: &str, more: &str) -> Command {
        if self.resumes() {
            return self.training.command_of(self.of.command, out, more);
        }
        let mut command = Command::new(program());
        command.current_dir(self.training.folder.path());
        command.env("XDG_DATA_HOME", self.path("data"));
        command.args([self.of.command, "--quiet", "--threads", "1", "--model"]);
        command.arg(golden("llama/tiny-trained"));
        command.args(self.of.words.split_whitespace());
        if self.of.command == "merge" {
            command.arg(golden("llama/adapter_trained_f32"));
        }
        command
            .arg("--out")
            .arg(self.path(out))
            .args(more.split_whitespace());
        command
    }

    /// The command with call number `call`, counted from 1, failing as `kind`; 0 passes all.
    pub fn faulty(&self, out: &str, more: &str, call: usize, kind: &str) -> Command {
        let mut command = self.command(out, more);
        command
            .env("LD_PRELOAD", faults())
            .env("FAULT_PREFIX", self.path(out));
        command
            .env("FAULT_CALL", call.to_string())
            .env("FAULT_KIND", kind);
        command
    }

    /// Expects the files in `out` after an attack to lead to the undisturbed result, and removes
    /// them.
    ///
    /// # Panics
    /// If they do not, or if it resumes from another checkpoint than the newest.
    pub fn recovers(&self, out: &str, case: &str) {
        self.recovers_in_place(out, case);
        fs::remove_dir_all(self.path(out)).expect("removed");
    }

    /// Like [`Scenario::recovers`], but keeps the files.
    ///
    /// # Panics
    /// As [`Scenario::recovers`].
    pub fn recovers_in_place(&self, out: &str, case: &str) {
        let path = self.path(out);
        if self.resumes() {
            let newest = newest_step(&path);
            let finished = ["adapter", "model"]
                .iter()
                .any(|name| path.join(name).exists());
            let ended = Ended::of(&mut self.command(out, "--resume"), PATIENCE);
            ended.as_success(&format!("{case}: --resume"));
            if let (Some(newest), false) = (newest, finished) {
                assert_eq!(
                    resumed_from(&path),
                    Some(newest),
                    "{case}: the step it resumed from"
                );
            }
        } else if !path.exists() {
            let ended = Ended::of(&mut self.command(out, ""), PATIENCE);
            ended.as_success(&format!("{case}: again"));
        }
        self.is_whole(out, case);
    }

    /// Expects `out` to hold the undisturbed result, and nothing unfinished.
    ///
    /// # Panics
    /// If it does not.
    pub fn is_whole(&self, out: &str, case: &str) {
        let path = self.path(out);
        let found = leftover(&path);
        let differs = self
            .whole
            .iter()
            .find(|(name, bytes)| found.get(*name) != Some(bytes));
        if let Some((name, _)) = differs {
            let what = if found.contains_key(name) {
                "has other bits"
            } else {
                "is missing"
            };
            panic!("{case}: {name} {what}");
        }
        let stranger = found.keys().find(|name| !self.whole.contains_key(*name));
        assert_eq!(stranger, None, "{case}: it should not be there");
    }
}

/// The files of a directory that must be equal bit for bit. Checkpoints are excluded: the run
/// verifies them itself.
pub fn leftover(directory: &Path) -> Leftover {
    let mut found = Leftover::new();
    collect(directory, "", &mut found);
    found
}

fn collect(directory: &Path, below: &str, found: &mut Leftover) {
    for name in names(directory) {
        if VARIES.contains(&name.as_str()) || name == "checkpoints" {
            continue;
        }
        let path = directory.join(&name);
        let key = format!("{below}{name}");
        if path.is_dir() {
            collect(&path, &format!("{key}/"), found);
        } else if !path.is_file() {
            // A pipe or a device, which must not be read.
            found.insert(key, b"no file".to_vec());
        } else if name == "metrics.jsonl" {
            let metrics = exact(&fs::read_to_string(&path).unwrap_or_default());
            found.insert(key, serde_json::json!(metrics).to_string().into_bytes());
        } else {
            found.insert(key, fs::read(&path).unwrap_or_default());
        }
    }
}

/// The step of the newest checkpoint with a final name.
fn newest_step(out: &Path) -> Option<u64> {
    let steps = names(&out.join("checkpoints")).into_iter();
    let steps = steps.filter_map(|name| name.strip_prefix("step-")?.parse().ok());
    steps.max()
}

/// The step from which the run last resumed.
fn resumed_from(out: &Path) -> Option<u64> {
    let text = fs::read(out.join("run.json")).ok()?;
    let run: Json = serde_json::from_slice(&text).ok()?;
    run["resumptions"].as_array()?.last()?["from_step"].as_u64()
}
