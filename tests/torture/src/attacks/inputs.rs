//! Inputs that change before a run resumes: refused, or without effect. With the original inputs,
//! the run resumes.

use std::fs;

use crate::built::golden;
use crate::ended::{Ended, PATIENCE};
use crate::suite::{Attack, Try};
use crate::training::{Trained, Training, copy, trained};

/// Options that change the run.
const WORDS: [&str; 8] = [
    "--set run.seed=1",
    "--set optim.learning_rate=1e-3",
    "--set run.eval_every=2",
    "--set adapter.lora.rank=4",
    "--set data.shuffle=false",
    "--set model.compute=f64",
    "--set quantizer.nf4.block_size=128",
    "--set data.micro_batch=2",
];

/// An unfinished run with a model and rows of its own.
pub struct Inputs {
    plugins: &'static str,
}

impl Inputs {
    /// Nothing is shared between tries: each changes its own inputs.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Inputs {
            plugins: "--plugins nf4,lora --set run.max_steps=4",
        }))
    }
}

impl Attack for Inputs {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let model = tempfile::tempdir().expect("a folder");
        copy(&golden("llama/tiny"), model.path());
        let training = Training::on(model.path(), self.plugins);
        let whole: Trained = training.succeed("whole", "");
        training.unfinished("whole", "out");
        let files = [
            "rows.jsonl",
            "model.safetensors",
            "config.json",
            "tokenizer.json",
        ];
        let (case, more, restored) = match random.below(2) {
            0 => {
                let words = *random.of_all(&WORDS);
                (words.to_owned(), words, None)
            }
            _ => {
                let name = *random.of_all(&files);
                let path = match name {
                    "rows.jsonl" => training.path(name),
                    _ => model.path().join(name),
                };
                let bytes = fs::read(&path).expect("a file");
                let mut changed = bytes.clone();
                let at = random.below(changed.len());
                changed[at] ^= 1 << random.below(8);
                fs::write(&path, &changed).expect("written");
                (format!("byte {at} of {name}"), "", Some((path, bytes)))
            }
        };
        let mut command = training.command("out", &format!("--resume {more}"));
        let ended = Ended::of(&mut command, PATIENCE);
        ended.as_documented(&case);
        if ended.succeeded() {
            assert!(
                trained(&training.path("out")) == whole,
                "{case}: exit code 0 and other bits"
            );
            return;
        }
        // A family refuses a key or a value of config.json that it does not know.
        let is_unknown = ended
            .last_line()
            .contains("failed in describe: config.json: ");
        let of_family = (case.ends_with("config.json") && is_unknown).then_some(5);
        let code = ended.code.unwrap_or(0);
        assert!(
            [2, 3, 4].contains(&code) || Some(code) == of_family,
            "{case}: exit code {code}: {}",
            ended.last_line()
        );
        if let Some((path, bytes)) = restored {
            fs::write(path, bytes).expect("put back");
        }
        assert!(
            training.succeed("out", "--resume") == whole,
            "{case}: put back, other bits"
        );
    }
}
