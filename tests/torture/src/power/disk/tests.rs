//! The model of a disk: what a power cut keeps and what it can drop.

use std::path::PathBuf;

use super::*;

fn change(kind: Kind, path: &str, to: &str, bytes: &[u8]) -> Change {
    let [path, to] = [path, to].map(PathBuf::from);
    Change {
        kind,
        path,
        to,
        bytes: bytes.to_vec(),
        at: 0,
    }
}

fn made(changes: &[Change]) -> Disk {
    let mut disk = Disk::default();
    changes.iter().for_each(|change| disk.make(change));
    disk
}

fn holds(disk: &Disk, expected: &[(&str, &str)]) -> bool {
    let expected: State = expected
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Some(text.as_bytes().to_vec())))
        .collect();
    disk.after_a_cut(|_| 0).contains(&expected)
}

/// The save of a small file, in the same calls as the program's.
fn save() -> Vec<Change> {
    vec![
        change(Kind::Open, "a.partial", "", b""),
        change(Kind::Write, "a.partial", "", b"new!"),
        change(Kind::Sync, "a.partial", "", b""),
        change(Kind::Rename, "a.partial", "a", b""),
        change(Kind::Sync, "", "", b""),
    ]
}

fn saved_before() -> Vec<Change> {
    let mut changes = vec![
        change(Kind::Open, "a", "", b""),
        change(Kind::Write, "a", "", b"old"),
    ];
    changes.extend([
        change(Kind::Sync, "a", "", b""),
        change(Kind::Sync, "", "", b""),
    ]);
    changes
}

#[test]
fn synced_changes_are_kept_and_others_can_be_lost() {
    let all: Vec<Change> = [saved_before(), save()].concat();
    let before = made(&all[..6]);
    for content in ["", "\0\0\0\0", "ne", "new!"] {
        assert!(
            holds(&before, &[("a", "old"), ("a.partial", content)]),
            "{content:?}"
        );
    }
    assert!(holds(&before, &[("a", "old")]), "its name was not synced");
    let renamed = made(&all[..8]);
    assert!(holds(&renamed, &[("a", "old")]) && holds(&renamed, &[("a", "new!")]));
    assert!(!holds(&renamed, &[("a", "")]), "its data was synced");
    assert_eq!(made(&all).after_a_cut(|_| 1).len(), 1, "all is synced");
    assert!(holds(&made(&all), &[("a", "new!")]));
}

#[test]
fn a_rename_before_the_sync_of_its_data_can_leave_an_empty_file() {
    let mut all = [saved_before(), save()].concat();
    all.remove(6);
    assert!(holds(&made(&all), &[("a", "")]));
    assert!(!holds(&made(&all), &[("a", "old")]));
}

#[test]
fn directories_move_with_their_contents() {
    let mut all = vec![change(Kind::MakeDirectory, "d.partial", "", b"")];
    all.push(change(Kind::Open, "d.partial/x", "", b""));
    all.push(change(Kind::Rename, "d.partial", "d", b""));
    all.push(change(Kind::Sync, "", "", b""));
    let disk = made(&all);
    let of = |names: &[&str]| -> State {
        let content = |name: &&str| name.ends_with('x').then(Vec::new);
        names
            .iter()
            .map(|name| ((*name).to_owned(), content(name)))
            .collect()
    };
    let states = disk.after_a_cut(|_| 0);
    assert!(states.contains(&of(&["d", "d/x"])) && states.contains(&of(&["d"])));
    all.push(change(Kind::Sync, "d", "", b""));
    assert_eq!(made(&all).after_a_cut(|_| 0), [of(&["d", "d/x"])]);
}
