//! One file of an output directory or of an exported one, damaged in some way: refused by name, or
//! without effect.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::built::{golden, program};
use crate::ended::{Ended, bounded};
use crate::random::Random;
use crate::scenario::{Scenario, leftover, named};
use crate::suite::{Attack, Try};
use crate::training::{copy, names};

/// Time limit of a refusal, and of a short run from a checkpoint.
const LIMIT: Duration = Duration::from_secs(40);

/// Kinds of damage to a file.
const KINDS: [&str; 10] = [
    "flip",
    "cut",
    "zero",
    "empty",
    "delete",
    "directory",
    "pipe",
    "device",
    "append",
    "exchange",
];

/// Finished runs, unfinished runs, and directories that other commands load.
pub struct Damage {
    runs: Vec<Scenario>,
    exports: Vec<Scenario>,
}

impl Damage {
    /// Makes them once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        let runs = ["nf4-lora", "full", "fsdp"].map(|name| {
            let of = Scenario::with(named(name), "--set run.keep_last=2 --set run.max_steps=4");
            of.training.unfinished("whole", "started");
            of
        });
        let exports = ["merge", "quantize"].map(|name| Scenario::new(named(name)));
        Ok(Box::new(Damage {
            runs: runs.into(),
            exports: exports.into(),
        }))
    }

    /// Resumes a run with a damaged file.
    fn run(of: &Scenario, random: &mut Random, out: &str) {
        let from = *random.of_all(&["whole", "started"]);
        copy(&of.path(from), &of.path(out));
        let (file, kind) = (chosen(&of.path(out), random), *random.of_all(&KINDS));
        let case = format!("{}, {from}: {kind} of {file}", of.of.name);
        damage_file(&of.path(out).join(&file), kind, random);
        let ended = Ended::of(&mut bounded(&of.command(out, "--resume")), LIMIT);
        ended.as_documented(&case);
        if ended.succeeded() {
            let found = leftover(&of.path(out));
            for (name, bytes) in &of.whole {
                let matters =
                    name != &file || file.starts_with("adapter/") || file.starts_with("model/");
                assert!(
                    !matters || found.get(name) == Some(bytes),
                    "{case}: exit code 0, and {name} is another"
                );
            }
            return;
        }
        let name = Path::new(&file)
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        assert!(
            ended.stderr.contains(&name),
            "{case}: the refusal does not name it: {}",
            ended.last_line()
        );
        // The refusal changed nothing: with the original file, the run is whole.
        let path = of.path(out).join(&file);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir(&path);
        fs::copy(of.path(from).join(&file), &path).expect("put back");
        of.recovers_in_place(out, &format!("{case}, put right after it was refused"));
    }

    /// Loads an exported directory with a damaged file.
    fn export(of: &Scenario, random: &mut Random, out: &str) {
        copy(&of.path("whole"), &of.path(out));
        let (file, kind) = (chosen(&of.path(out), random), *random.of_all(&KINDS));
        let case = format!("{}: {kind} of {file}", of.of.name);
        damage_file(&of.path(out).join(&file), kind, random);
        let mut generate = Command::new(program());
        generate
            .current_dir(of.training.folder.path())
            .env("XDG_DATA_HOME", of.path("data"));
        generate.args([
            "generate",
            "--quiet",
            "--prompt",
            "a",
            "--max-tokens",
            "2",
            "--model",
        ]);
        Ended::of(&mut bounded(generate.arg(of.path(out))), LIMIT).as_documented(&case);
    }
}

impl Attack for Damage {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let out = a_try.name();
        let of = match random.below(4) {
            0 => {
                let of = random.of_all(&self.exports);
                Damage::export(of, &mut random, &out);
                of
            }
            _ => {
                let of = random.of_all(&self.runs);
                Damage::run(of, &mut random, &out);
                of
            }
        };
        fs::remove_dir_all(of.path(&out)).expect("removed");
    }
}

/// A random file below a directory.
fn chosen(directory: &Path, random: &mut Random) -> String {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for name in names(&directory.join(&folder)) {
            let path = folder.join(name);
            if directory.join(&path).is_dir() {
                folders.push(path)
            } else {
                files.push(path.to_string_lossy().into_owned())
            }
        }
    }
    random.of_all(&files).clone()
}

/// Damages the file at `path`.
fn damage_file(path: &Path, kind: &str, random: &mut Random) {
    let mut bytes = fs::read(path).expect("a file");
    let at = random.below(bytes.len().max(1));
    match kind {
        "flip" if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        "cut" => bytes.truncate(at),
        "zero" => {
            let end = bytes.len().min(at + 1 + random.below(4096));
            bytes[at.min(end)..end].fill(0);
        }
        "empty" => bytes.clear(),
        "append" => bytes.extend_from_slice(b"\n{}"),
        "exchange" => {
            bytes = fs::read(golden("llama/tiny/config.json")).expect("a file");
        }
        _ => {}
    }
    fs::remove_file(path).expect("removed");
    match kind {
        "delete" => {}
        "directory" => fs::create_dir(path).expect("created"),
        "pipe" => assert!(
            Command::new("mkfifo")
                .arg(path)
                .status()
                .expect("mkfifo starts")
                .success()
        ),
        "device" => symlink("/dev/zero", path).expect("a link"),
        _ => fs::write(path, bytes).expect("written"),
    }
}
