//! The log of a run: sessions, waiting lines and withdrawal.

use super::*;

fn read(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(NAME)).expect("a log")
}

#[test]
fn buffered_lines_follow_the_session_line_and_earlier_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    for session in 1..=2 {
        let mut log = LogFile::none();
        assert_eq!(log.keep("dropped\n"), Ok(()));
        log.wait(folder.path());
        assert_eq!(log.keep("early\n"), Ok(()));
        assert_eq!(log.open(), Ok(()));
        assert_eq!(log.keep("late\n"), Ok(()));
        let text = read(folder.path());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3 * session, "{text}");
        let [header, early, late] = lines[3 * session - 3..] else {
            panic!("{text}");
        };
        assert!(header.contains("Z === process "), "{header}");
        assert_eq!([early, late], ["early", "late"]);
    }
}

#[test]
fn a_path_that_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join(NAME)).expect("a folder");
    let mut log = LogFile::none();
    log.wait(folder.path());
    let why = log.open().expect_err("a folder is no log");
    assert!(why.contains("log.txt"), "{why}");
    assert_eq!(log.keep("goes nowhere\n"), Ok(()));
    assert!(log.descriptor().is_none());
}

#[test]
fn a_new_log_that_is_alone_in_its_directory_is_withdrawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("above/out");
    for (beside, stays) in [(None, false), (Some("metrics.jsonl"), true), (None, true)] {
        let mut log = LogFile::none();
        log.wait(&out);
        fs::create_dir_all(&out).expect("created");
        assert_eq!(log.open(), Ok(()));
        if let Some(name) = beside {
            fs::write(out.join(name), "").expect("written");
        }
        log.withdraw();
        assert_eq!(out.join(NAME).exists(), stays, "{beside:?}");
        assert_eq!(folder.path().join("above").exists(), stays, "{beside:?}");
        if let Some(name) = beside {
            fs::remove_file(out.join(name)).expect("removed");
        }
    }
}
