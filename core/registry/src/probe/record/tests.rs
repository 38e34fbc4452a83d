//! The record of probed libraries: reading, damage and concurrent writers.

use super::*;

fn entry(file: &str, signal: i32) -> Entry {
    let (doing, stderr) = (crate::library::Doing::new("open", None), String::new());
    Entry {
        file: file.into(),
        host: "a".to_owned(),
        outcome: Outcome::Quarantined(LibraryFault::Crashed {
            signal,
            doing,
            stderr,
        }),
    }
}

#[test]
fn what_is_put_is_read_and_a_damaged_record_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("espalier/probed.json");
    assert!(Record::read(&path).get("aa").is_none());
    Record::put(&path, "aa", entry("x.so", 11));
    Record::put(&path, "bb", entry("y.so", 6));
    // Rebuilt: the older entry of the file is removed.
    Record::put(&path, "cc", entry("x.so", 4));
    let record = Record::read(&path);
    assert!(record.get("aa").is_none());
    let outcome = |hash: &str| record.get(hash).expect("put").outcome.clone();
    assert_eq!(outcome("bb"), entry("y.so", 6).outcome);
    assert_eq!(outcome("cc"), entry("x.so", 4).outcome);
    for damaged in ["", "[]", "{\"libraries\": 3}"] {
        fs::write(&path, damaged).expect("our own file");
        assert!(Record::read(&path).get("bb").is_none(), "{damaged}");
    }
    Record::put(&path, "dd", entry("z.so", 8));
    assert!(Record::read(&path).get("dd").is_some());
}

#[test]
fn threads_that_put_at_once_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("probed.json");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..25 {
                    let name = format!("{thread}-{number}");
                    Record::put(path, &name, entry(&name, 11));
                }
            });
        }
    });
    assert_eq!(Record::read(&path).libraries.len(), 100);
}
