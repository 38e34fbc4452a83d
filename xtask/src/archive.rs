//! Writes a folder as a `.tar.gz` whose bytes depend on names, contents, links and execute bits
//! alone.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Packs all files below `folder` as `root/...`: names sorted, owner 0, time 0, mode 644 or 755.
///
/// # Errors
/// Where a file cannot be read or the archive cannot be written.
pub fn write(archive: &Path, folder: &Path, root: &Path) -> Result<()> {
    let partial = archive.with_extension("gz.partial");
    let file =
        File::create(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let gzip = GzBuilder::new().mtime(0).write(file, Compression::best());
    let mut tar = Builder::new(gzip);
    for name in names(folder, Path::new(""))? {
        append(&mut tar, &folder.join(&name), &root.join(&name))
            .with_context(|| format!("cannot pack {}", name.display()))?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    fs::rename(&partial, archive).with_context(|| format!("cannot make {}", archive.display()))
}

fn append(tar: &mut Builder<impl std::io::Write>, path: &Path, name: &Path) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    if path.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        tar.append_link(&mut header, name, fs::read_link(path)?)?;
        return Ok(());
    }
    let content = fs::read(path)?;
    let is_executable = path.metadata()?.permissions().mode() & 0o111 != 0;
    header.set_entry_type(EntryType::Regular);
    header.set_size(content.len() as u64);
    header.set_mode(if is_executable { 0o755 } else { 0o644 });
    tar.append_data(&mut header, name, content.as_slice())?;
    Ok(())
}

/// All files below `root/inside`, relative to `root`, sorted.
fn names(root: &Path, inside: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(inside))? {
        let entry = entry?;
        let name = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(names(root, &name)?)
        } else {
            found.push(name)
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_times_or_the_order_of_writing() {
        let scratch = tempfile::tempdir().expect("a folder");
        let packed = |name: &str, order: [&str; 3]| {
            let folder = scratch.path().join(name);
            fs::create_dir_all(folder.join("inner")).expect("a folder");
            for file in order {
                fs::write(folder.join(file), file).expect("a file");
            }
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(folder.join("b"), mode).expect("a mode");
            let archive = scratch.path().join(format!("{name}.tar.gz"));
            write(&archive, &folder, Path::new("root")).expect("an archive");
            fs::read(archive).expect("an archive")
        };
        let first = packed("first", ["a", "b", "inner/c"]);
        std::thread::sleep(std::time::Duration::from_millis(1100)); // tar counts whole seconds
        assert_eq!(first, packed("second", ["inner/c", "b", "a"]));

        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(first.as_slice()));
        let entries: Vec<_> = tar
            .entries()
            .expect("entries")
            .map(|entry| {
                let entry = entry.expect("an entry");
                let name = entry.path().expect("a name").display().to_string();
                (name, entry.header().mode().expect("a mode"))
            })
            .collect();
        let expected = [
            ("root/a", 0o644),
            ("root/b", 0o755),
            ("root/inner/c", 0o644),
        ];
        assert_eq!(entries, expected.map(|(name, mode)| (name.into(), mode)));
    }

    #[test]
    fn a_link_stays_a_link() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("folder");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("program"), "program").expect("a file");
        std::os::unix::fs::symlink("program", folder.join("name")).expect("a link");
        let archive = scratch.path().join("archive.tar.gz");
        write(&archive, &folder, Path::new("root")).expect("an archive");
        let file = File::open(archive).expect("an archive");
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
        let entries = tar.entries().expect("entries");
        let found: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let to = entry.link_name().expect("a name");
                let to = to.map(|to| to.into_owned());
                (entry.path().expect("a path").into_owned(), to)
            })
            .collect();
        let expected = [
            ("root/name".into(), Some("program".into())),
            ("root/program".into(), None),
        ];
        assert_eq!(found, expected);
    }
}
