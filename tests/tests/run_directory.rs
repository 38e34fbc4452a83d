//! Write access to an output directory: one run at a time, and none over a finished one.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_system::failure::Failure;
use espalier_system::files::{Continue, FileError, RunDirectory, RunState};

#[test]
fn a_directory_belongs_to_one_run_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("runs/first");
    let run = RunDirectory::claim(&path, Continue::Refuse).unwrap();
    assert_eq!(run.state(), RunState::Empty);
    for continuing in [Continue::Refuse, Continue::Resume] {
        let error = RunDirectory::claim(&path, continuing).unwrap_err();
        assert_eq!(error.exit_class().code(), 2);
        let holder = format!("in use by process {} on ", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
    }
    drop(run);
    assert_eq!(
        fs::read_dir(temp.path()).unwrap().count(),
        0,
        "a claim that nothing came of leaves nothing behind"
    );
    fs::create_dir_all(&path).unwrap();
    drop(RunDirectory::claim(&path, Continue::Refuse).unwrap());
    assert_eq!(
        fs::read_dir(&path).unwrap().count(),
        0,
        "the lock leaves nothing behind"
    );
    // The lock file of a killed process blocks no other.
    fs::write(path.join("run.lock"), "process 1 on nowhere").unwrap();
    RunDirectory::claim(&path, Continue::Refuse).unwrap();
}

#[test]
fn a_run_is_not_overwritten_unless_continued() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    fs::write(path.join("slurm-17.log"), "not ours").unwrap();
    RunDirectory::claim(path, Continue::Refuse).unwrap();

    fs::write(path.join("metrics.jsonl"), "").unwrap();
    fs::create_dir(path.join("checkpoints")).unwrap();
    let error = RunDirectory::claim(path, Continue::Refuse).unwrap_err();
    let expected = "already holds an unfinished run (checkpoints, metrics.jsonl)";
    assert!(error.to_string().contains(expected), "{error}");
    let advice = "continue it with --resume, or choose another one";
    assert!(error.to_string().contains(advice), "{error}");
    let resumed = RunDirectory::claim(path, Continue::Resume).unwrap();
    assert_eq!(resumed.state(), RunState::Unfinished);
    drop(resumed);

    fs::create_dir(path.join("adapter")).unwrap();
    let error = RunDirectory::claim(path, Continue::Refuse).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("already holds a finished run (adapter)"),
        "{error}"
    );
    assert!(matches!(error, FileError::OutputTaken { .. }));
    assert_eq!(error.exit_class().code(), 2);
    assert_eq!(
        RunDirectory::claim(path, Continue::Resume).unwrap().state(),
        RunState::Finished
    );
    assert!(
        !path.join("run.lock").exists(),
        "a refusal leaves no lock behind"
    );
}

#[test]
fn directories_of_a_claim_remain_if_files_were_written() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("runs/first");
    let run = RunDirectory::claim(&path, Continue::Refuse).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    drop(run);
    assert_eq!(fs::read(path.join("notes.txt")).unwrap(), b"mine");
    // A claim that created only its own directory removes only that one.
    let beside = temp.path().join("runs/second");
    drop(RunDirectory::claim(&beside, Continue::Refuse).unwrap());
    assert!(!beside.exists() && path.is_dir());
}

#[test]
fn a_run_that_ended_before_its_first_number_blocks_no_other_run() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    fs::write(path.join("run.json"), "{}").unwrap();
    // A directory with only a record is taken.
    let error = RunDirectory::refuse_taken(path).unwrap_err();
    assert!(error.to_string().contains("(run.json)"), "{error}");
    fs::write(path.join("metrics.jsonl"), "").unwrap();
    RunDirectory::refuse_taken(path).unwrap();
    for existing in [Continue::Refuse, Continue::Resume] {
        let claimed = RunDirectory::claim(path, existing).unwrap();
        assert_eq!(claimed.state(), RunState::Empty);
        let error = RunDirectory::refuse_taken(path).unwrap_err();
        assert!(error.to_string().contains("in use by process"), "{error}");
    }
    fs::write(path.join("metrics.jsonl"), "{\"step\":1}\n").unwrap();
    assert!(RunDirectory::refuse_taken(path).is_err());
}

#[test]
fn a_path_that_cannot_be_a_directory_is_a_usage_error() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = RunDirectory::claim(&path, Continue::Refuse).unwrap_err();
        assert_eq!(error.exit_class().code(), 2, "{error}");
    }
}

#[test]
fn the_lock_holds_while_other_runs_start_and_end() {
    let temp = tempfile::tempdir().unwrap();
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    if let Ok(run) = RunDirectory::claim(temp.path(), Continue::Refuse) {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        entered.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(run);
                    }
                }
            });
        }
    });
    assert!(entered.load(Ordering::SeqCst) > 0);
}
