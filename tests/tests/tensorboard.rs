//! Event files: equal to those of TensorBoard's own writer (tests/golden/tensorboard), with no
//! duplicate step after a resumption.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_engine::observer::{EvalMetrics, Event, Observer, StepMetrics};
use espalier_report::tensorboard::{EventFile, TensorBoard};

const FIRST: &str = "events.out.tfevents.0000000000.espalier";
const SECOND: &str = "events.out.tfevents.0000000002.espalier";

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tensorboard");
    fs::read(path.join(name)).expect(name)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a folder");
    let path = |entry: PathBuf| {
        entry
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let mut names: Vec<String> = entries.map(|e| path(e.expect("an entry").path())).collect();
    names.sort();
    names
}

/// The three steps of the golden run.
fn write(directory: &Path) {
    let mut file = EventFile::create(directory, 0, 1000.5).expect("created");
    let mut scalars = |group: &str, step: u64, time: f64, values: &[(&str, f64)]| {
        file.scalars(group, step, time, values).expect("written");
    };
    scalars("eval", 0, 1000.75, &[("loss", 5.75)]);
    scalars("train", 1, 1001.0, &[("loss", 5.5), ("learning_rate", 0.0)]);
    scalars(
        "train",
        2,
        1002.0,
        &[("loss", 5.25), ("learning_rate", 3e-4)],
    );
    scalars("eval", 2, 1002.5, &[("loss", 5.125)]);
    scalars(
        "train",
        3,
        1003.0,
        &[("loss", 5.0), ("learning_rate", 2e-4)],
    );
}

#[test]
fn files_equal_those_of_tensorboards_own_writer() {
    let place = tempfile::tempdir().expect("a folder");
    write(place.path());
    assert_eq!(
        fs::read(place.path().join(FIRST)).expect("events"),
        golden("uninterrupted")
    );
}

#[test]
fn a_resumed_run_truncates_the_steps_that_it_repeats() {
    let place = tempfile::tempdir().expect("a folder");
    write(place.path());
    let first = place.path().join(FIRST);
    // The process was killed while it wrote.
    let mut torn = fs::read(&first).expect("events");
    torn.extend([7; 5]);
    fs::write(&first, torn).expect("written");
    fs::write(
        place.path().join("events.out.tfevents.0000000009.espalier"),
        "void",
    )
    .expect("written");
    fs::write(place.path().join("events.out.tfevents.1.another"), "kept").expect("written");
    for _ in 0..2 {
        let mut file = EventFile::create(place.path(), 2, 2000.0).expect("created");
        let values = [("loss", 5.0), ("learning_rate", 2e-4)];
        file.scalars("train", 3, 2001.0, &values).expect("written");
    }
    assert_eq!(fs::read(&first).expect("events"), golden("cut"));
    assert_eq!(
        fs::read(place.path().join(SECOND)).expect("events"),
        golden("resumed")
    );
    assert_eq!(
        names(place.path()),
        [FIRST, SECOND, "events.out.tfevents.1.another"]
    );
}

#[test]
fn an_observer_writes_every_number_of_a_line() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("tensorboard");
    let board = TensorBoard::new(&folder);
    assert!(!folder.exists(), "nothing has happened yet");
    let step = StepMetrics {
        step: 3,
        loss: f64::NAN,
        ..StepMetrics::default()
    };
    board.observe(&Event::StepFinished(&step));
    board.observe(&Event::Evaluated(&EvalMetrics::default()));
    assert_eq!(names(&folder), [SECOND]);
    let bytes = fs::read(folder.join(SECOND)).expect("events");
    let holds = |tag: &str| bytes.windows(tag.len()).any(|part| part == tag.as_bytes());
    for tag in [
        "train/grad_norm",
        "train/peak_host_bytes",
        "eval/loss",
        "eval/token_accuracy",
    ] {
        assert!(holds(tag), "{tag}");
    }
    assert!(!holds("train/loss"), "not a number");
}

#[test]
fn a_folder_that_cannot_be_written_does_not_end_the_run() {
    let place = tempfile::tempdir().expect("a folder");
    let taken = place.path().join("tensorboard");
    fs::write(&taken, "a file").expect("written");
    let board = TensorBoard::new(&taken);
    for step in 1..3 {
        let step = StepMetrics {
            step,
            ..StepMetrics::default()
        };
        board.observe(&Event::StepFinished(&step));
    }
    assert_eq!(fs::read(&taken).expect("a file"), b"a file");
}
