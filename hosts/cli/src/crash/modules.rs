//! The program and its libraries -> a table of their addresses in memory, for a signal handler.
#![allow(unsafe_code)] // Lists of loaded modules from the dynamic linker.

use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{Elf64_Phdr, dl_phdr_info, size_t};

/// The note that the linker leaves in a file: owner, and type.
const OWNER: &[u8] = b"GNU\0";
const BUILD_ID: u32 = 3;

/// A loaded file.
#[derive(Debug)]
pub struct Module {
    /// Its address range.
    addresses: Range<usize>,
    /// The load address of its address 0.
    base: usize,
    /// Its file's name.
    pub name: Vec<u8>,
    /// The identity that the linker gave it, in hexadecimal digits; empty where it gave none.
    pub build_id: Vec<u8>,
}

/// Null, or a table that is never freed.
static TABLE: AtomicPtr<Vec<Module>> = AtomicPtr::new(ptr::null_mut());

/// Records the modules that are loaded now. The earlier table is leaked, as a handler may be
/// reading it: libraries are opened a few times in a process's life.
pub fn learn() {
    let mut found: Vec<Module> = Vec::new();
    // SAFETY: `take` is called with one module after the other and this vector, before the call
    // returns.
    unsafe { libc::dl_iterate_phdr(Some(take), ptr::from_mut(&mut found).cast()) };
    TABLE.store(Box::into_raw(Box::new(found)), Ordering::Release);
}

/// The module that contains an address, and the address in its file. Safe in handlers.
pub fn place(address: usize) -> Option<(&'static Module, usize)> {
    // SAFETY: null, or a table that is never freed nor changed.
    let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
    let module = table.iter().find(|one| one.addresses.contains(&address))?;
    Some((module, address.wrapping_sub(module.base)))
}

/// Appends a module to the vector at `found`.
unsafe extern "C" fn take(info: *mut dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
    // SAFETY: the linker gives a valid description, and `learn` its vector.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Module>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the module has that many headers there, as long as it is loaded.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let ranges = loaded.map(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.saturating_add(header.p_memsz as usize)
    });
    let Some(addresses) = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) else {
        return 0;
    };
    found.push(Module {
        base,
        name: file_name(info),
        build_id: build_id(&addresses, base, headers),
        addresses,
    });
    0
}

/// The last part of the path of a module's file.
fn file_name(info: &dl_phdr_info) -> Vec<u8> {
    let path = if info.dlpi_name.is_null() {
        &[]
    } else {
        // SAFETY: a text of the linker's that ends in NUL.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let path = match path.as_os_str().is_empty() {
        // The program's own file.
        true => std::env::current_exe().unwrap_or_default(),
        // A library that was opened by its descriptor.
        false if path.starts_with("/proc/self/fd") => fs::read_link(path).unwrap_or_default(),
        false => path.to_owned(),
    };
    let name = path.file_name().unwrap_or_default().as_bytes();
    // A copy in memory has the name of the copied file.
    let name = name.strip_prefix(b"memfd:").unwrap_or(name);
    name.strip_suffix(b" (deleted)").unwrap_or(name).to_vec()
}

fn build_id(addresses: &Range<usize>, base: usize, headers: &[Elf64_Phdr]) -> Vec<u8> {
    let notes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE);
    let mut found = notes.filter_map(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        let end = start.checked_add(header.p_memsz as usize)?;
        if !addresses.contains(&start) || end > addresses.end {
            return None;
        }
        // SAFETY: loaded parts of a file are only read, and stay as long as the module.
        let notes = unsafe { slice::from_raw_parts(start as *const u8, end - start) };
        id_among(notes)
    });
    let id = found.next().unwrap_or_default();
    let digits = id
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes());
    digits.collect()
}

/// The identity among notes. Each note has the lengths of its owner and content and its type, then
/// both, padded to 4 bytes.
fn id_among(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let number = |at: usize| {
            let bytes = notes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
        };
        let (owner, content) = (number(0)?, number(4)?);
        let begin = 12 + owner.next_multiple_of(4);
        let here = notes.get(begin..begin.checked_add(content)?)?;
        if number(8)? == BUILD_ID as usize && notes.get(12..12 + owner)? == OWNER {
            return Some(here);
        }
        notes = notes.get(begin + content.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_found_with_its_name() {
        learn();
        let own = learn as *const () as usize;
        let (module, offset) = place(own).expect("it is loaded");
        let program = std::env::current_exe().expect("a file");
        assert_eq!(module.name, program.file_name().expect("a name").as_bytes());
        assert!(offset < own && offset > 0);
        assert!(place(1).is_none());
    }

    #[test]
    fn the_identity_is_found_among_notes_and_damaged_notes_have_none() {
        let note = |owner: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            for number in [owner.len() as u32, content.len() as u32, kind] {
                note.extend(number.to_ne_bytes());
            }
            for part in [owner, content] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [
            note(b"stapsdt\0", 3, b"abcde"),
            note(OWNER, 1, b"abcd"),
            note(OWNER, 3, b"\x01\xff\x02"),
        ];
        let notes = notes.concat();
        assert_eq!(id_among(&notes), Some(&b"\x01\xff\x02"[..]));
        for end in 0..notes.len() - 1 {
            assert_eq!(id_among(&notes[..end]), None, "{end}");
        }
        assert_eq!(id_among(&[0xff; 40]), None);
    }
}
