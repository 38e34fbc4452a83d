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
mod tests;
