//! Compilations -> what the compiler tells of their kernels, for a kind of card that need not be
//! there.

use std::path::Path;

use espalier_interface::{ErrorCode, PluginError, Result};

use crate::compiler::Compiler;
use crate::kernel_files::KernelFiles;
use crate::libraries;
use crate::op::variants::Variant;

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    /// Its name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack_bytes: u32,
    /// Bytes of registers that are stored to memory for want of more, and loaded again.
    pub spill_bytes: u32,
}

/// The compiler for one kind of card.
pub struct Recorder(Compiler);

impl Recorder {
    /// NVRTC of `folder`, for cards of a compute capability.
    ///
    /// # Errors
    /// `DEVICE` where the folder has no NVRTC.
    pub fn new(folder: &Path, capability: [i32; 2]) -> Result<Self> {
        let nvrtc = libraries::open_compiler(folder)?;
        Ok(Recorder(Compiler::new(Ok(nvrtc), capability, None)))
    }

    /// NVRTC's version.
    pub fn version(&self) -> [i32; 2] {
        self.0.version()
    }

    /// The kernels of a compilation, with the options that the backend uses.
    ///
    /// # Errors
    /// `DEVICE` where the source does not compile, with the compiler's log, or where the log tells
    /// of no kernel.
    pub fn kernels(&self, variant: &Variant) -> Result<Vec<KernelRecord>> {
        let log = self.0.told(variant.source, &variant.definitions)?;
        let kernels = read(&log);
        if kernels.is_empty() {
            let source = variant.source();
            let what = format!("{source}: NVRTC's log tells of no kernel: {log}");
            return Err(PluginError::new(ErrorCode::DEVICE, what));
        }
        Ok(kernels)
    }

    /// The code of a compilation, a CUBIN.
    ///
    /// # Errors
    /// As [`Recorder::kernels`].
    pub fn code(&self, variant: &Variant) -> Result<Vec<u8>> {
        self.0.compiled(variant.source, &variant.definitions)
    }

    /// Compiles, and keeps the code in `folder`, where option `kernels` finds it.
    ///
    /// # Errors
    /// As [`Recorder::kernels`], and `DEVICE` where the folder cannot be written.
    pub fn keep(&self, variant: &Variant, folder: &Path) -> Result<()> {
        let code = self.code(variant)?;
        let files = KernelFiles {
            cache: Some(folder.to_owned()),
            shipped: None,
        };
        let stem = self.0.stem(variant.source, &variant.definitions);
        let kept = files.keep(&stem, self.version(), &code);
        kept.map_err(|why| {
            let what = format!("{} cannot be written: {why}", folder.display());
            PluginError::new(ErrorCode::DEVICE, what)
        })
    }

    /// The name of a compilation's file, up to the compiler's version.
    pub fn stem(&self, variant: &Variant) -> String {
        let stem = self.0.stem(variant.source, &variant.definitions);
        stem.name().to_owned()
    }
}

/// The kernels of a log of ptxas.
fn read(log: &str) -> Vec<KernelRecord> {
    let mut kernels: Vec<KernelRecord> = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            kernels.push(KernelRecord {
                name: name.split('\'').next().unwrap_or_default().to_owned(),
                registers: 0,
                stack_bytes: 0,
                spill_bytes: 0,
            });
        }
        let Some(kernel) = kernels.last_mut() else {
            continue;
        };
        if line.contains("bytes stack frame") {
            kernel.stack_bytes = before(line, " bytes stack frame");
            let stores = before(line, " bytes spill stores");
            kernel.spill_bytes = stores + before(line, " bytes spill loads");
        }
        if line.contains(" registers") {
            kernel.registers = before(line, " registers");
        }
    }
    kernels
}

/// The number that stands before `words`, 0 without one.
fn before(line: &str, words: &str) -> u32 {
    let head = line.split_once(words).map_or("", |(head, _)| head);
    let digits = head.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of NVRTC 13.5 for a source with two kernels, of which the first was made to spill.
    const LOG: &str = "ptxas info    : 12 bytes gmem, 16 bytes cmem[4]
ptxas info    : Compiling entry function 'sum_rows_bf16' for 'sm_80'
ptxas info    : Function properties for sum_rows_bf16
ptxas         .     40 bytes stack frame, 36 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 40 bytes cumulative stack size
ptxas info    : Compile time = 107.464 ms
ptxas info    : Compiling entry function 'sum_chunks' for 'sm_80'
ptxas info    : Function properties for sum_chunks
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 392 bytes cmem[0]
";

    #[test]
    fn a_log_tells_registers_stack_and_spills_of_each_kernel() {
        let record = |name: &str, [registers, stack_bytes, spill_bytes]: [u32; 3]| KernelRecord {
            name: name.to_owned(),
            registers,
            stack_bytes,
            spill_bytes,
        };
        let expected = [
            record("sum_rows_bf16", [32, 40, 60]),
            record("sum_chunks", [24, 0, 0]),
        ];
        assert_eq!(read(LOG), expected);
    }
}
