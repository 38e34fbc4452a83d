//! The bytes of a library file -> its descriptor, without running code.

use espalier_interface::abi::descriptor::{self, Descriptor, SECTION};
use espalier_interface::abi::is_served;
use object::elf::{EM_AARCH64, EM_X86_64, ET_DYN, FileHeader64};
use object::read::elf::{Dyn, ElfFile};
use object::{LittleEndian, Object, ObjectSection, ObjectSegment};
use serde::Deserialize;

use super::fault::LibraryFault;

/// Length of a 64-bit ELF header.
const HEADER: usize = 64;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = EM_AARCH64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0; // EM_NONE: no library is ever built for it, so only linked plugins serve.

/// The interface's version, which comes first in every version of the descriptor.
#[derive(Deserialize)]
struct Version {
    abi: [u32; 2],
}

/// The descriptor in the section `.espalier` of an ELF file.
///
/// # Errors
/// A [`LibraryFault`] that names the kind of file.
pub fn read(bytes: &[u8]) -> Result<Descriptor, LibraryFault> {
    header(bytes)?;
    let truncated = |reason: String| LibraryFault::Truncated {
        bytes: bytes.len(),
        reason,
    };
    let file = ElfFile::<FileHeader64<LittleEndian>>::parse(bytes)
        .map_err(|error| truncated(lower(&error.to_string())))?;
    for segment in file.segments() {
        let (offset, size) = segment.file_range();
        let end = offset.saturating_add(size);
        if end > bytes.len() as u64 {
            return Err(truncated(format!("a segment ends at byte {end}")));
        }
    }
    let section = file
        .section_by_name(SECTION)
        .ok_or(LibraryFault::NoSection)?;
    let section = section
        .data()
        .map_err(|error| truncated(lower(&error.to_string())))?;
    descriptor::read(section).map_err(|reason| match version(section) {
        Some(found) if !is_served(found) => LibraryFault::Abi { found },
        _ => LibraryFault::Descriptor(reason),
    })
}

/// Whether the dynamic linker searches the library's own folder, by `$ORIGIN` in the needed names
/// or search paths of the ELF file.
pub fn names_origin(bytes: &[u8]) -> bool {
    let Ok(file) = ElfFile::<FileHeader64<LittleEndian>>::parse(bytes) else {
        return false;
    };
    let sections = file.elf_section_table();
    let Ok(Some((entries, strings))) = sections.dynamic(LittleEndian, bytes) else {
        return false;
    };
    let Ok(strings) = sections.strings(LittleEndian, bytes, strings) else {
        return false;
    };
    let texts = entries.iter().filter(|entry| entry.is_string(LittleEndian));
    let mut texts = texts.filter_map(|entry| entry.string(LittleEndian, strings).ok());
    texts.any(|text| {
        let text = String::from_utf8_lossy(text);
        text.contains("$ORIGIN") || text.contains("${ORIGIN}")
    })
}

/// Checks that this host can talk to the plugin.
///
/// # Errors
/// [`LibraryFault::Abi`] for another version of the interface. [`LibraryFault::Descriptor`] for an
/// invalid or repeated name.
pub fn check(descriptor: &Descriptor) -> Result<(), LibraryFault> {
    if !is_served(descriptor.abi) {
        let found = descriptor.abi;
        return Err(LibraryFault::Abi { found });
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let names = descriptor
        .components
        .iter()
        .map(|component| component.name.as_str());
    for name in std::iter::once(descriptor.name.as_str()).chain(names.clone()) {
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(LibraryFault::Descriptor(format!(
                "the name `{}` is not made of lower case letters, digits and `-`",
                name.escape_default()
            )));
        }
    }
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(LibraryFault::Descriptor(format!(
            "two of its components are called `{}`",
            pair[0]
        ))),
    }
}

/// The version of a descriptor that cannot be read in full.
fn version(section: &[u8]) -> Option<[u32; 2]> {
    let start = descriptor::MAGIC.len() + 4;
    let length = section
        .get(start - 4..start)?
        .try_into()
        .ok()
        .map(u32::from_le_bytes)?;
    let text = section.get(start..)?.get(..length as usize)?;
    serde_json::from_slice::<Version>(text)
        .ok()
        .map(|version| version.abi)
}

/// Checks the header's class, byte order, type and machine.
fn header(bytes: &[u8]) -> Result<(), LibraryFault> {
    if !bytes.starts_with(b"\x7fELF") {
        let start = &bytes[..bytes.len().min(4)];
        let found = match start {
            [] => "nothing".to_owned(),
            _ => format!("`{}`", start.escape_ascii()),
        };
        return Err(LibraryFault::NotElf { found });
    }
    if bytes.len() < HEADER {
        return Err(LibraryFault::Truncated {
            bytes: bytes.len(),
            reason: format!("an ELF header has {HEADER} bytes"),
        });
    }
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let other = |found: String| LibraryFault::OtherMachine {
        expected: machine(MACHINE),
        found,
    };
    // Source: System V ABI, "ELF header": e_ident[EI_CLASS], e_ident[EI_DATA], e_type, e_machine.
    match (bytes[4], bytes[5]) {
        (2, 1) => {}
        (1, _) => return Err(other("a 32-bit machine".to_owned())),
        (_, 2) => return Err(other("a big-endian machine".to_owned())),
        (class, order) => return Err(other(format!("ELF class {class}, byte order {order}"))),
    }
    if word(18) != MACHINE {
        return Err(other(machine(word(18))));
    }
    match word(16) {
        ET_DYN => Ok(()),
        found => Err(LibraryFault::NotShared { found }),
    }
}

fn machine(id: u16) -> String {
    match id {
        EM_X86_64 => "x86_64".to_owned(),
        EM_AARCH64 => "aarch64".to_owned(),
        other => format!("machine {other}"),
    }
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests;
