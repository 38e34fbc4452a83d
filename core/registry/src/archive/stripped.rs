//! A library -> the same library without symbols and debug information.
//!
//! What is loaded lies in segments and stays where it is, byte for byte. Sections that are not
//! loaded, other than the names of sections, are left out. Dynamic symbols and the descriptor are
//! loaded, so they stay. Source: System V ABI, "ELF header" and "Sections".

use object::elf::{SHF_ALLOC, SHF_INFO_LINK, SHT_DYNSYM, SHT_NOBITS, SHT_REL, SHT_RELA};

/// Lengths of the headers of a 64-bit ELF file, of a segment's, a section's and a symbol's entry.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// Section numbers from here on have a meaning of their own.
const RESERVED: usize = 0xff00;

/// A section's entry in the file's table.
#[derive(Clone, Copy)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: usize,
    size: usize,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
}

/// The library `bytes`, a 64-bit little-endian ELF file, without what is not loaded.
///
/// # Errors
/// What in its tables is wrong, in words.
pub(super) fn stripped(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let file = Elf(bytes);
    let sections = file.sections()?;
    let is_kept = |(index, section): (usize, &Section)| {
        index == 0 || section.flags & u64::from(SHF_ALLOC) != 0
    };
    let mut new_index: Vec<Option<usize>> = Vec::with_capacity(sections.len());
    let mut kept: Vec<Section> = Vec::new();
    for entry in sections.iter().enumerate() {
        new_index.push(is_kept(entry).then_some(kept.len()));
        if is_kept(entry) {
            kept.push(*entry.1);
        }
    }
    let names = sections
        .get(file.word(0x3e)? as usize)
        .ok_or("it has no names of sections")?;
    let mut out = file.range(0, file.loaded_end(&kept)?)?.to_vec();
    let moved = |index: u32| match new_index.get(index as usize) {
        Some(Some(new)) => *new as u32,
        _ => 0,
    };
    let mut texts = vec![0];
    for section in &mut kept {
        section.name = file.copy_name(names, section.name, &mut texts)?;
        section.link = moved(section.link);
        let names_a_section = section.flags & u64::from(SHF_INFO_LINK) != 0
            || section.kind == SHT_REL
            || section.kind == SHT_RELA;
        if names_a_section {
            section.info = moved(section.info);
        }
        if section.kind == SHT_DYNSYM {
            renumber_symbols(&mut out, section, &new_index)?;
        }
    }
    let name = texts.len() as u32;
    texts.extend(b".shstrtab\0");
    kept.push(Section {
        name,
        flags: 0,
        address: 0,
        offset: out.len(),
        size: texts.len(),
        link: 0,
        info: 0,
        align: 1,
        entry_size: 0,
        ..*names
    });
    out.extend(&texts);
    out.resize(out.len().next_multiple_of(8), 0);
    let table = out.len() as u64;
    out[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    out[0x3c..0x3e].copy_from_slice(&(kept.len() as u16).to_le_bytes());
    out[0x3e..0x40].copy_from_slice(&(kept.len() as u16 - 1).to_le_bytes());
    for section in &kept {
        out.extend(section.entry());
    }
    Ok(out)
}

/// Gives the symbols of the table `section` the new numbers of their sections.
fn renumber_symbols(
    out: &mut [u8],
    section: &Section,
    new_index: &[Option<usize>],
) -> Result<(), String> {
    let end = section.offset.saturating_add(section.size);
    let table = out.get_mut(section.offset..end);
    let table = table.ok_or("its dynamic symbols lie outside of it")?;
    for symbol in table.chunks_exact_mut(SYMBOL) {
        let index = usize::from(u16::from_le_bytes([symbol[6], symbol[7]]));
        if index < RESERVED {
            let new = new_index.get(index).copied().flatten();
            let new = new.ok_or("a dynamic symbol is in a section that is not loaded")?;
            symbol[6..8].copy_from_slice(&(new as u16).to_le_bytes());
        }
    }
    Ok(())
}

impl Section {
    fn entry(&self) -> [u8; SECTION] {
        let mut entry = [0; SECTION];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            entry[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.name.to_le_bytes());
        put(&self.kind.to_le_bytes());
        put(&self.flags.to_le_bytes());
        put(&self.address.to_le_bytes());
        put(&(self.offset as u64).to_le_bytes());
        put(&(self.size as u64).to_le_bytes());
        put(&self.link.to_le_bytes());
        put(&self.info.to_le_bytes());
        put(&self.align.to_le_bytes());
        put(&self.entry_size.to_le_bytes());
        entry
    }
}

/// A file, of which nothing is read outside of its bounds.
struct Elf<'a>(&'a [u8]);

impl<'a> Elf<'a> {
    fn range(&self, start: usize, size: usize) -> Result<&'a [u8], String> {
        let end = start.saturating_add(size);
        self.0.get(start..end).ok_or_else(|| {
            let bytes = self.0.len();
            format!("its tables name bytes up to {end}, it has {bytes}")
        })
    }

    fn word(&self, at: usize) -> Result<u16, String> {
        let bytes = self.range(at, 2)?.try_into().expect("two bytes");
        Ok(u16::from_le_bytes(bytes))
    }

    fn int(&self, at: usize) -> Result<u32, String> {
        let bytes = self.range(at, 4)?.try_into().expect("four bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    fn long(&self, at: usize) -> Result<u64, String> {
        let bytes = self.range(at, 8)?.try_into().expect("eight bytes");
        Ok(u64::from_le_bytes(bytes))
    }

    fn sections(&self) -> Result<Vec<Section>, String> {
        let (table, count) = (self.long(0x28)? as usize, self.word(0x3c)? as usize);
        if count == 0 || usize::from(self.word(0x3a)?) != SECTION {
            return Err("it has no table of sections".to_owned());
        }
        self.range(table, count * SECTION)?;
        let section = |index: usize| {
            let at = table + index * SECTION;
            Ok(Section {
                name: self.int(at)?,
                kind: self.int(at + 4)?,
                flags: self.long(at + 8)?,
                address: self.long(at + 16)?,
                offset: self.long(at + 24)? as usize,
                size: self.long(at + 32)? as usize,
                link: self.int(at + 40)?,
                info: self.int(at + 44)?,
                align: self.long(at + 48)?,
                entry_size: self.long(at + 56)?,
            })
        };
        (0..count).map(section).collect()
    }

    /// The end of all that is loaded: headers, segments, and the sections `kept`.
    fn loaded_end(&self, kept: &[Section]) -> Result<usize, String> {
        let (table, count) = (self.long(0x20)? as usize, self.word(0x38)? as usize);
        let mut end = HEADER.max(table.saturating_add(count * SEGMENT));
        for index in 0..count {
            let at = table.saturating_add(index * SEGMENT);
            let (offset, size) = (self.long(at + 8)?, self.long(at + 32)?);
            end = end.max(offset.saturating_add(size) as usize);
        }
        for section in kept.iter().filter(|one| one.kind != SHT_NOBITS) {
            end = end.max(section.offset.saturating_add(section.size));
        }
        Ok(end)
    }

    /// Appends a section's name to `texts` and returns where it begins there.
    fn copy_name(&self, names: &Section, at: u32, texts: &mut Vec<u8>) -> Result<u32, String> {
        let text = self.range(names.offset, names.size)?;
        let text = text.get(at as usize..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0);
        let end = end.ok_or("the name of a section has no end")?;
        if end == 0 {
            return Ok(0);
        }
        let start = texts.len() as u32;
        texts.extend(&text[..=end]);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_tables_are_refused() {
        let program = std::fs::read("/proc/self/exe").expect("this program");
        let small = stripped(&program).expect("it is stripped");
        assert!(small.len() < program.len());
        assert_eq!(stripped(&small).expect("again"), small);
        let end = program.len() - 1;
        for cut in [0, 16, 63, 64, 1000, end] {
            stripped(&program[..cut]).expect_err("its tables are cut off");
        }
        let mut many = small.clone();
        many[0x3c..0x3e].copy_from_slice(&u16::MAX.to_le_bytes());
        stripped(&many).expect_err("more sections than it has");
        let mut far = small;
        far[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
        stripped(&far).expect_err("a table outside of it");
    }
}
