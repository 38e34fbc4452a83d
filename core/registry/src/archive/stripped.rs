//! A library -> the same library without symbols and debug information.

use object::build::elf::{Builder, SectionData};

/// The library `bytes`, an ELF file, without what is not loaded. What is loaded stays where it is:
/// segments, dynamic symbols, the descriptor.
///
/// # Errors
/// What in its tables is wrong, in words.
pub(super) fn stripped(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let words = |error: object::build::Error| error.to_string();
    let mut file = Builder::read(bytes).map_err(words)?;
    for section in &mut file.sections {
        let names_sections = matches!(section.data, SectionData::SectionString);
        section.delete = !section.is_alloc() && !names_sections;
    }
    for symbol in &mut file.symbols {
        symbol.delete = true;
    }
    let mut out = Vec::new();
    file.write(&mut out).map_err(words)?;
    Ok(out)
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
