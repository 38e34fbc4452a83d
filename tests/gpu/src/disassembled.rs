//! A compiled source -> its instructions, counted by NVIDIA's disassembler.

use std::io::{Error, Result, Write};
use std::path::Path;
use std::process::Command;

use tempfile::NamedTempFile;

/// Instructions of a compiled source that its speed stands on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// Products of tensor cores.
    pub tensor: usize,
    /// Loads and stores of 16 bytes of device memory, copies of 16 bytes to shared memory included.
    pub wide: usize,
}

impl Instructions {
    /// Those of `code`, a CUBIN, as `nvdisasm` at a path lists them.
    ///
    /// # Errors
    /// Where the program does not run or refuses the code.
    pub fn of(nvdisasm: &Path, code: &[u8]) -> Result<Self> {
        let mut file = NamedTempFile::new()?;
        file.write_all(code)?;
        let mut program = Command::new(nvdisasm);
        let output = program.arg("--print-code").arg(file.path()).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::other(words));
        }
        Ok(listed(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// Instructions of a list.
fn listed(text: &str) -> Instructions {
    let mut found = Instructions::default();
    let names = text.lines().filter_map(name);
    for name in names {
        let parts: Vec<&str> = name.split('.').collect();
        let is_wide = ["LDG", "STG", "LDGSTS"].contains(&parts[0]) && parts.contains(&"128");
        found.tensor += usize::from(parts[0] == "HMMA");
        found.wide += usize::from(is_wide);
    }
    found
}

/// The name of a line's instruction: `/*0050*/  @!P0 LDG.E.128 R4, [R2.64] ;`.
fn name(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    let mut words = rest.split_whitespace();
    words.find(|word| !word.starts_with('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of nvdisasm 13.5.
    const LIST: &str = "\
	.target	sm_80
.text.product_bf16:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0020*/                   LDG.E.64 R4, [R2.64] ;
        /*0030*/                   LDGSTS.E.BYPASS.128.ZFILL [R9], [R2.64], P1 ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/                   STG.E.128 [R2.64], R4 ;
        /*0060*/                   LDS.128 R4, [R9] ;
";

    #[test]
    fn a_list_has_products_of_tensor_cores_and_accesses_of_16_bytes() {
        let expected = Instructions { tensor: 1, wide: 3 };
        assert_eq!(listed(LIST), expected);
    }
}
