//! Output of `strace -f -y` -> the kinds and paths of changes below a folder, in the form of a
//! record.

use std::collections::HashMap;
use std::path::Path;

use super::{Change, Kind};

/// Common fields of a change in a trace and a record: its kind, path, and number of bytes.
type Seen = (Kind, String, usize);

/// The traced calls.
pub const CALLS: &str = "open,openat,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fsync,fdatasync,rename,renameat,\
                         renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,copy_file_range,sendfile,fallocate,\
                         sync_file_range,syncfs,sync";

/// The changes below `folder` that `trace` shows, in order.
///
/// # Panics
/// If it shows one that no record has a name for.
pub fn traced(trace: &str, folder: &Path) -> Vec<Seen> {
    let mut unfinished: HashMap<&str, String> = HashMap::new();
    let mut seen = Vec::new();
    for line in trace.lines() {
        let Some((process, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        if let Some(started) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, started.to_owned());
            continue;
        }
        let call = match call.split_once(" resumed>") {
            Some((_, rest)) => unfinished.remove(process).unwrap_or_default() + rest,
            None => call.to_owned(),
        };
        seen.extend(change(&call, folder));
    }
    seen
}

/// A record's changes in the same form.
pub fn recorded(changes: &[Change]) -> Vec<Seen> {
    let form = |change: &Change| {
        let path = match change.kind {
            Kind::Rename | Kind::Link => {
                format!("{} {}", change.path.display(), change.to.display())
            }
            _ => change.path.display().to_string(),
        };
        (change.kind, path, change.bytes.len())
    };
    changes.iter().map(form).collect()
}

/// One call in a line, if it succeeded and changed something below `folder`.
fn change(call: &str, folder: &Path) -> Option<Seen> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let result: i64 = result.split(['<', ' ']).next()?.parse().ok()?;
    if result < 0 {
        return None;
    }
    let paths = paths(arguments);
    let below = |path: &String| {
        let path = Path::new(path).strip_prefix(folder).ok()?;
        Some(path.display().to_string())
    };
    let below: Vec<String> = paths.iter().filter_map(below).collect();
    let first = below.first()?.clone();
    let both = below.join(" ");
    let bytes = usize::try_from(result).unwrap_or(0);
    let creates = ["O_CREAT", "O_TRUNC"]
        .iter()
        .any(|flag| arguments.contains(flag));
    let seen = match name {
        "open" | "openat" | "creat" => {
            (creates || name == "creat").then_some((Kind::Open, first, 0))?
        }
        "write" | "pwrite64" | "writev" | "pwritev" | "copy_file_range" | "sendfile"
            if bytes == 0 =>
        {
            return None;
        }
        "write" | "pwrite64" | "writev" | "pwritev" | "sendfile" => (Kind::Write, first, bytes),
        // It can read from the same folder: the second file is the one that changes.
        "copy_file_range" => (Kind::Write, below.last()?.clone(), bytes),
        "ftruncate" | "truncate" => (Kind::Truncate, first, 0),
        "fallocate" => (Kind::Extend, first, 0),
        "fsync" | "fdatasync" => (Kind::Sync, first, 0),
        "rename" | "renameat" | "renameat2" => (Kind::Rename, both, 0),
        "link" | "linkat" => (Kind::Link, both, 0),
        "unlink" | "unlinkat" | "rmdir" => (Kind::Remove, first, 0),
        "mkdir" | "mkdirat" => (Kind::MakeDirectory, first, 0),
        other => panic!("no record has a name for {other}: {call}"),
    };
    Some(seen)
}

/// The paths in arguments: of open files and of texts. A relative one follows the open directory
/// before it.
fn paths(arguments: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut directory = None;
    let mut rest = arguments;
    while let Some(at) = rest.find(['<', '"']) {
        let is_open_file = rest.as_bytes()[at] == b'<';
        let close = if is_open_file { '>' } else { '"' };
        let begin = at + 1;
        let Some(length) = rest[begin..].find(close) else {
            break;
        };
        let path = &rest[begin..begin + length];
        let behind = &rest[begin + length + 1..];
        let names_more = behind.starts_with(", \"") && !behind.starts_with(", \"\"");
        match (is_open_file, path.starts_with('/')) {
            // The directory of the following name.
            (true, _) if names_more => directory = Some(path.to_owned()),
            (true, true) | (false, true) => paths.push(path.to_owned()),
            (false, false) if !path.is_empty() => {
                let directory = directory.take().unwrap_or_default();
                paths.push(format!("{directory}/{path}"));
            }
            _ => {}
        }
        rest = behind;
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_are_changes_with_their_paths() {
        let trace = "\
7 openat(AT_FDCWD</home>, \"/r/out/a\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 5</r/out/a>\n\
7 write(5</r/out/a>, \"\"..., 104 <unfinished ...>\n\
8 write(2</dev/tty>, \"\"..., 9) = 9\n\
7 <... write resumed>) = 104\n\
7 fsync(5</r/out/a>) = 0\n\
7 rename(\"/r/out/a\", \"/r/out/b\") = 0\n\
7 unlinkat(6</r/out/d>, \"x\", 0) = 0\n\
7 unlink(\"/r/out/none\") = -1 ENOENT (No such file or directory)\n\
7 openat(AT_FDCWD</home>, \"/r/out/b\", O_RDONLY|O_CLOEXEC) = 5</r/out/b>\n";
        let text = |kind, path: &str, bytes| (kind, path.to_owned(), bytes);
        let expected = [
            text(Kind::Open, "out/a", 0),
            text(Kind::Write, "out/a", 104),
            text(Kind::Sync, "out/a", 0),
            text(Kind::Rename, "out/a out/b", 0),
            text(Kind::Remove, "out/d/x", 0),
        ];
        assert_eq!(traced(trace, Path::new("/r")), expected);
    }
}
