//! Plugin libraries, damaged before a run and replaced while one starts.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use espalier_samples::{faulty, put};
use espalier_system::files::hash_bytes;
use serde_json::Value as Json;

use crate::ended::{Ended, bounded};
use crate::suite::{Attack, Try};
use crate::training::Training;

/// Time limit of a run whose library is probed first.
const LIMIT: Duration = Duration::from_secs(60);

/// A library without fault, and one that crashes.
pub struct Libraries {
    good: Vec<u8>,
    crashing: Vec<u8>,
}

impl Libraries {
    /// Builds them.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        let (good, crashing) = (faulty("nowhere:none"), faulty("decode:segfault"));
        Ok(Box::new(Libraries { good, crashing }))
    }

    /// A library with some changed bytes.
    fn damaged(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let training = training();
        let path = training.path("plugins/libcase.so");
        let mut bytes = self.good.clone();
        let what = match random.below(5) {
            0 => {
                bytes.truncate(random.below(bytes.len()));
                format!("cut to {} bytes", bytes.len())
            }
            _ => {
                let count = 1 + random.below(3);
                // Tables and text of sections are at the ends, code between.
                let places: Vec<usize> = (0..count).map(|_| random.below(bytes.len())).collect();
                places
                    .iter()
                    .for_each(|&at| bytes[at] ^= 1 << random.below(8));
                format!("bits of bytes {places:?}")
            }
        };
        put(&path, &bytes);
        let ended = Ended::of(&mut bounded(&training.command("out", "")), LIMIT);
        ended.as_documented(&what);
        if let (true, Some(hash)) = (ended.succeeded(), recorded(&training.path("out"))) {
            assert_eq!(
                hash,
                hash_bytes(&bytes),
                "{what}: the record names another library"
            );
        }
        // The good library resumes, or is refused as another: never silently accepted as the same.
        put(&path, &self.good);
        let again = Ended::of(&mut bounded(&training.command("out", "--resume")), LIMIT);
        again.as_documented(&format!("{what}, then the good one"));
        assert!(
            ended.succeeded()
                || !again.succeeded()
                || recorded(&training.path("out")) == Some(hash_bytes(&self.good)),
            "{what}: the good one resumed, and the record names the other"
        );
    }

    /// Two libraries that replace each other at one path while a run starts.
    fn exchanged(&self, a_try: &Try) {
        let training = training();
        let path = training.path("plugins/libcase.so");
        put(&path, &self.good);
        let over = AtomicBool::new(false);
        let mut random = a_try.random.clone();
        let pause = Duration::from_micros(200 + random.below(4000) as u64);
        let case = format!("exchanged every {pause:?}");
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let turns = [&self.crashing, &self.good].into_iter().cycle();
                for library in turns.take_while(|_| !over.load(Ordering::Relaxed)) {
                    put(&path, library);
                    std::thread::sleep(pause);
                }
            });
            let ended = Ended::of(&mut bounded(&training.command("out", "")), LIMIT);
            over.store(true, Ordering::Relaxed);
            ended
        });
        ended.as_documented(&case);
        let hash = recorded(&training.path("out"));
        let [good, crashing] = [&self.good, &self.crashing].map(|library| hash_bytes(library));
        let crashed = ended.stderr.contains("crashed with");
        assert!(
            !crashed || hash.as_ref() != Some(&good),
            "{case}: the record names the good library, the other ran"
        );
        assert!(
            !ended.succeeded() || hash != Some(crashing),
            "{case}: the record names the other library, the good one ran"
        );
    }
}

impl Attack for Libraries {
    fn attempt(&self, a_try: &Try) {
        match a_try.number % 3 {
            0 => self.exchanged(a_try),
            _ => self.damaged(a_try),
        }
    }
}

fn training() -> Training {
    let more = "--plugins faulty,lora --plugin-dir plugins --set run.max_steps=2";
    let training = Training::new(more);
    fs::create_dir(training.path("plugins")).expect("a folder");
    training
}

/// The hash of the library that a run's record names.
fn recorded(out: &Path) -> Option<String> {
    let run: Json = serde_json::from_slice(&fs::read(out.join("run.json")).ok()?).ok()?;
    found(&run)
}

/// The hash beside the library's path, anywhere in the record.
fn found(value: &Json) -> Option<String> {
    match value {
        Json::Object(members) => {
            let hash = members.get("sha256").and_then(Json::as_str);
            let is_ours = members.values().any(|value| {
                value
                    .as_str()
                    .is_some_and(|text| text.ends_with("libcase.so"))
            });
            match hash {
                Some(hash) if is_ours => Some(hash.to_owned()),
                _ => members.values().find_map(found),
            }
        }
        Json::Array(values) => values.iter().find_map(found),
        _ => None,
    }
}
