//! A request to stop before the first step: a plugin that aborts is not a failure, and no directory
//! is taken.

use std::path::Path;

use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::{Event, Observer, Unobserved};
use espalier_system::stop::StopFlag;
use espalier_tests::golden_path;
use espalier_trainer::Error;
use espalier_trainer::checkpoint::ResumeFrom;
use espalier_trainer::train::{self, Stopped};

fn config(folder: &Path) -> ResolvedConfig {
    let rows = folder.join("rows.jsonl");
    std::fs::write(&rows, "{\"input_ids\": [5, 6, 7, 8]}\n").expect("written");
    let mut sources = Sources::default();
    for (key, value) in [
        ("model.path", golden_path("llama/tiny")),
        ("data.files", rows),
        ("run.out", folder.join("out")),
    ] {
        let text = match key {
            "data.files" => format!("{key}=[{value:?}]"),
            _ => format!("{key}={value:?}"),
        };
        sources = sources.set(text);
    }
    resolve(&sources.set("plugins=[\"nf4\", \"lora\"]")).expect("a config")
}

/// Requests a stop while the first weight is read.
struct AtTheFirstWeight(StopFlag);

impl Observer for AtTheFirstWeight {
    fn observe(&self, event: &Event<'_>) {
        if let Event::LoadProgress { done: 1, .. } = event {
            self.0.request(15);
        }
    }
}

#[test]
fn a_stop_before_the_first_step_leaves_the_output_free() {
    let folder = tempfile::tempdir().expect("a folder");
    let resolved = config(folder.path());
    let (stop, early) = (StopFlag::new(), StopFlag::new());
    early.request(15);
    let watching = AtTheFirstWeight(stop.clone());
    for stopped in [
        train::run(&resolved, &watching, &stop),
        train::run(&resolved, &Unobserved, &early),
        train::resume(&resolved, ResumeFrom::Newest, &Unobserved, &early),
    ] {
        let error = stopped.expect_err("it was asked to stop");
        let expected = matches!(
            &error,
            Error::Stopped(Stopped {
                signal: 15,
                step: 0,
                saved: None,
                ..
            })
        );
        assert!(expected, "{error:?}");
        assert_eq!(error.exit_code(), 143);
        assert!(
            error.next_step().contains("start again"),
            "{}",
            error.next_step()
        );
    }
    let left = std::fs::read_dir(folder.path().join("out"))
        .into_iter()
        .flatten();
    assert_eq!(left.count(), 0, "the output is not free");
    let done = train::run(&resolved, &Unobserved, &StopFlag::new()).expect("a run");
    assert_eq!(done.steps, 1);
}
