//! Non-finite numbers in weights and from hyperparameters: exit code 7, or 4 and 2 for refused
//! weights and hyperparameters. None is ever saved.

use std::fs;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::built::golden;
use crate::ended::{Ended, PATIENCE};
use crate::suite::{Attack, Try};
use crate::training::{Training, copy, names};

/// Hyperparameters with which an update overflows or divides by zero.
const WORDS: [&str; 7] = [
    "--set optim.learning_rate=1e39",
    "--set optim.learning_rate=1e30",
    "--set optim.weight_decay=1e300",
    "--set optim.eps=1e-60",
    "--set optim.eps=0",
    "--set adapter.lora.alpha=1e38",
    "--set optim.learning_rate=1e300",
];

/// Kinds of runs.
const PLUGINS: [&str; 4] = [
    "--plugins nf4,lora",
    "--plugins lora",
    "",
    "--plugins hqq,lora,ddp --ranks 2",
];

/// Each try makes its own run.
pub struct Numbers;

impl Numbers {
    /// Nothing is shared.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Numbers))
    }
}

impl Attack for Numbers {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let plugins = *random.of_all(&PLUGINS);
        let steps = 1 + random.below(4);
        let model = tempfile::tempdir().expect("a folder");
        copy(&golden("llama/tiny"), model.path());
        let (words, refused, what) = match random.below(3) {
            0 => {
                let weights = model.path().join("model.safetensors");
                let mut bytes = fs::read(&weights).expect("weights");
                let value = *random.of_all(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]);
                let header =
                    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize + 8;
                let at = header + 4 * random.below((bytes.len() - header) / 4);
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                fs::write(weights, bytes).expect("written");
                ("", 4, format!("{value} at byte {at} of the weights"))
            }
            _ => {
                let words = *random.of_all(&WORDS);
                (words, 2, words.to_owned())
            }
        };
        // Saved after each step, or never before the end.
        let every = *random.of_all(&[1, 1000]);
        let case = format!("{plugins}, {steps} steps, saved every {every}: {what}");
        let more =
            format!("{plugins} {words} --set run.max_steps={steps} --set run.save_every={every}");
        let training = Training::on(model.path(), &more);
        let ended = Ended::of(&mut training.command("out", ""), PATIENCE);
        ended.as_documented(&case);
        assert!(
            [Some(0), Some(refused), Some(7)].contains(&ended.code),
            "{case}: exit code {:?}: {}",
            ended.code,
            ended.last_line()
        );
        if let Some(found) = not_finite(&training.path("out")) {
            panic!(
                "{case}: exit code {:?}, and {found} holds numbers that are not finite",
                ended.code
            );
        }
    }
}

/// The first file of weights below a directory with a number that is not finite.
fn not_finite(directory: &Path) -> Option<String> {
    names(directory).into_iter().find_map(|name| {
        let path = directory.join(&name);
        if path.is_dir() {
            return not_finite(&path).map(|found| format!("{name}/{found}"));
        }
        let is_weights = path.extension().is_some_and(|end| end == "safetensors");
        (is_weights && !is_finite(&fs::read(&path).expect("a file"))).then_some(name)
    })
}

fn is_finite(bytes: &[u8]) -> bool {
    let tensors = SafeTensors::deserialize(bytes).expect("a file of the program's own");
    tensors.tensors().iter().all(|(_, tensor)| {
        let mut values = tensor
            .data()
            .chunks_exact(4)
            .map(|x| f32::from_le_bytes(x.try_into().expect("4 bytes")));
        tensor.dtype() != Dtype::F32 || values.all(f32::is_finite)
    })
}
