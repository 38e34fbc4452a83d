//! Modes and owners of files and folders -> who could replace a library.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
}

fn checked(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).expect("it is there");
    check(path, &metadata).map_err(|fault| fault.to_string())
}

#[test]
fn whoever_could_replace_a_file_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("above/below");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("lib.so");
    fs::write(&file, "").expect("room");
    set(&file, 0o755);
    assert_eq!(checked(&file), Ok(()));
    let refused = |words: &str| {
        let found = checked(&file).expect_err(words);
        assert!(found.starts_with(words), "{found}");
    };
    set(&file, 0o757);
    refused("any user may write to it (mode 757)");
    set(&file, 0o755);
    set(&folder, 0o777);
    refused("any user may write to its folder ");
    // As for temporary files: only the owner can replace a file there.
    set(&folder, 0o1777);
    assert_eq!(checked(&file), Ok(()));
    set(&folder, 0o755);
    let above = place.path().join("above");
    set(&above, 0o703);
    refused("any user may write to its folder ");
    set(&above, 0o1777);
    assert_eq!(checked(&file), Ok(()));
    set(&above, 0o755);
    // A link is as safe as its folder.
    let links = place.path().join("links");
    fs::create_dir(&links).expect("a folder");
    symlink(&file, links.join("first.so")).expect("a link");
    symlink("links/first.so", place.path().join("second.so")).expect("a link");
    assert_eq!(checked(&place.path().join("second.so")), Ok(()));
    set(&links, 0o777);
    let found = checked(&place.path().join("second.so")).expect_err("any user");
    assert!(found.contains("/links (mode 777)"), "{found}");
}

#[test]
fn the_group_counts_but_for_the_users_own_and_owners_are_told_apart() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("lib.so");
    fs::write(&file, "").expect("room");
    set(&file, 0o775);
    let found = fs::metadata(&file).expect("just written");
    let (uid, gid) = (found.uid(), found.gid());
    assert_eq!(writers(&found, gid), None);
    assert_eq!(writers(&found, gid + 1), Some(Writers::Group(gid)));
    assert_eq!(owned(&found, uid, None), Ok(()));
    if uid == 0 {
        assert_eq!(owned(&found, 1, None), Ok(()));
        std::os::unix::fs::chown(&file, Some(7), None).expect("root may");
        let found = checked(&file).expect_err("another's");
        let expected = "it belongs to user 7, expected user 0 or root";
        assert_eq!(found, expected);
        std::os::unix::fs::chown(&file, Some(0), None).expect("root may");
        std::os::unix::fs::chown(place.path(), Some(7), None).expect("root may");
        let found = checked(&file).expect_err("another's");
        assert!(found.starts_with("its folder "), "{found}");
    }
}
