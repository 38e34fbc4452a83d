//! A library's path and permissions -> whether other users could replace its code.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::fault::{LibraryFault, Writers};

/// Most symbolic links that are followed in a chain, as the system does.
const LINKS: usize = 40;

/// Mode bits: any user may write, the group may write, and (sticky) only owners may replace files
/// of the folder.
const BY_ANY: u32 = 0o002;
const BY_GROUP: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Checks that only this user and root can write or replace the file `path`, which has `metadata`.
///
/// The file and its folder have to belong to this user or to root, and no other user or group may
/// write to them. Folders above may not be writable by any user. In a sticky folder only the owner
/// can replace a file. The same holds for the folder of each symbolic link to the file.
///
/// # Errors
/// [`LibraryFault::Writable`], [`LibraryFault::Foreign`] and [`LibraryFault::Unreadable`].
pub(super) fn check(path: &Path, metadata: &Metadata) -> Result<(), LibraryFault> {
    let user = rustix::process::geteuid().as_raw();
    owned(metadata, user, None)?;
    if let Some(who) = writers(metadata, user) {
        let mode = metadata.mode() & 0o7777;
        return Err(LibraryFault::Writable {
            who,
            folder: None,
            mode,
        });
    }
    let unreadable = |error: std::io::Error| LibraryFault::Unreadable(error.to_string());
    for hop in hops(path).map_err(unreadable)? {
        folders(&hop, user)?;
    }
    Ok(())
}

/// The path, the target of each link at its end, and the file's own path.
fn hops(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut hops = vec![std::path::absolute(path)?];
    while let (Some(last), true) = (hops.last(), hops.len() <= LINKS) {
        let Ok(target) = fs::read_link(last) else {
            break;
        };
        let folder = last.parent().unwrap_or(Path::new("/"));
        let next = folder.join(target);
        hops.push(next);
    }
    hops.push(fs::canonicalize(path)?);
    hops.dedup();
    Ok(hops)
}

/// Checks the folder of `path`, and those above it.
fn folders(path: &Path, user: u32) -> Result<(), LibraryFault> {
    let mut entry = path;
    while let Some(folder) = entry.parent() {
        let metadata = |of: std::io::Result<Metadata>| {
            of.map_err(|error| LibraryFault::Unreadable(error.to_string()))
        };
        let found = metadata(fs::metadata(folder))?;
        let who = if entry == path {
            owned(&found, user, Some(folder))?;
            writers(&found, user)
        } else {
            by_any(&found)
        };
        if let Some(who) = who {
            let inside = metadata(fs::symlink_metadata(entry))?;
            let kept = found.mode() & STICKY != 0 && [user, 0].contains(&inside.uid());
            if !kept {
                return Err(LibraryFault::Writable {
                    who,
                    folder: Some(folder.to_owned()),
                    mode: found.mode() & 0o7777,
                });
            }
        }
        entry = folder;
    }
    Ok(())
}

fn owned(found: &Metadata, user: u32, folder: Option<&Path>) -> Result<(), LibraryFault> {
    if [user, 0].contains(&found.uid()) {
        Ok(())
    } else {
        Err(LibraryFault::Foreign {
            folder: folder.map(Path::to_owned),
            uid: found.uid(),
            user,
        })
    }
}

fn by_any(found: &Metadata) -> Option<Writers> {
    (found.mode() & BY_ANY != 0).then_some(Writers::Any)
}

/// Who may write besides the owner. A group with the user's own number has only that user, as on
/// most systems.
fn writers(found: &Metadata, user: u32) -> Option<Writers> {
    let by_group = found.mode() & BY_GROUP != 0 && found.gid() != user;
    by_any(found).or_else(|| by_group.then_some(Writers::Group(found.gid())))
}

#[cfg(test)]
mod tests {
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
}
