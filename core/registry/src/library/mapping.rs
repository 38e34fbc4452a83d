//! An address of this process -> the file that is mapped there; maps all of a library's pages.
#![allow(unsafe_code)] // The kernel is asked to map pages of a library that stays open.

use std::ops::Range;
use std::{fs, io};

use rustix::mm::{Advice, madvise};

/// Device and inode of a mapped file, as the system lists them. On some file systems they differ
/// from those of the file's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    device: String,
    inode: String,
}

struct Mapping {
    addresses: Range<usize>,
    is_readable: bool,
    file: MappedFile,
}

/// The file that is mapped at `address`.
///
/// # Errors
/// Where the system does not list mappings.
pub(super) fn file_at(address: usize) -> io::Result<Option<MappedFile>> {
    let found = mappings()?
        .into_iter()
        .find(|mapping| mapping.addresses.contains(&address));
    Ok(found.map(|mapping| mapping.file))
}

/// Maps every page of the library with code at `address`, which is never closed.
///
/// A file in memory occupies its pages whether they are mapped or not, but the system counts only
/// mapped ones. Afterwards it counts all of them, instead of more with each first call of a
/// function. Linux before 5.14 does not support this; the count then grows as before.
///
/// # Errors
/// Where the system does not list mappings.
pub(super) fn populate(address: usize) -> io::Result<()> {
    let mappings = mappings()?;
    let own = mappings
        .iter()
        .find(|mapping| mapping.addresses.contains(&address));
    let Some(library) = own.map(|mapping| mapping.file.clone()) else {
        return Ok(());
    };
    let of_library = |mapping: &&Mapping| mapping.is_readable && mapping.file == library;
    for mapping in mappings.iter().filter(of_library) {
        let (start, bytes) = (mapping.addresses.start, mapping.addresses.len());
        // SAFETY: reads of mapped pages, which change no content.
        let populated = unsafe { madvise(start as *mut _, bytes, Advice::LinuxPopulateRead) };
        if let Err(error) = populated {
            tracing::debug!("pages of a library are mapped when they are used: {error}");
        }
    }
    Ok(())
}

fn mappings() -> io::Result<Vec<Mapping>> {
    let maps = fs::read("/proc/self/maps")?;
    Ok(String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(mapping)
        .collect())
}

/// Reads `7f00-7f10 r-xp 00000000 fd:01 1234 /path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let is_readable = words.next()?.starts_with('r');
    let (device, inode) = (words.nth(1)?, words.next()?);
    Some(Mapping {
        addresses: number(start)?..number(end)?,
        is_readable,
        file: MappedFile {
            device: device.to_owned(),
            inode: inode.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use memmap2::MmapOptions;

    use super::*;

    #[test]
    fn a_line_is_read() {
        let mapping = mapping("7f00-7f10 r-xp 00000000 fd:01 1234    /a path").expect("a mapping");
        assert_eq!(mapping.addresses, 0x7f00..0x7f10);
        assert!(mapping.is_readable);
        assert_eq!(mapping.file.device, "fd:01");
        assert_eq!(mapping.file.inode, "1234");
    }

    #[test]
    fn a_mapping_is_known_by_its_file() {
        let file = tempfile::tempfile().expect("room");
        file.set_len(10).expect("room");
        let map = |file: &File| {
            // SAFETY: nobody else has the file.
            unsafe { MmapOptions::new().len(1).map(file) }.expect("memory")
        };
        let (one, two) = (map(&file), map(&file));
        let of = |address: *const u8| file_at(address as usize).expect("Linux");
        assert!(of(one.as_ptr()).is_some());
        assert_eq!(of(one.as_ptr()), of(two.as_ptr()));
    }

    #[test]
    fn a_file_in_memory_is_held_whole_once_it_is_populated() {
        let pages = 64;
        let bytes = pages * rustix::param::page_size();
        let file = File::from(
            rustix::fs::memfd_create("pages", rustix::fs::MemfdFlags::CLOEXEC).expect("memory"),
        );
        file.set_len(bytes as u64).expect("memory");
        // SAFETY: nobody else has the file.
        let map = unsafe { MmapOptions::new().len(bytes).map(&file) }.expect("memory");
        populate(map.as_ptr() as usize).expect("Linux");
        let smaps = fs::read_to_string("/proc/self/smaps").expect("Linux");
        let start = format!("{:x}-", map.as_ptr() as usize);
        let own = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let mut resident = own.filter_map(|line| line.strip_prefix("Rss:"));
        let resident = resident.next().expect("a figure").trim().to_owned();
        assert_eq!(resident, format!("{} kB", bytes / 1024));
    }
}
