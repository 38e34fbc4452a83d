//! A kernel's source -> the card's code, compiled once and kept on disk.
#![allow(unsafe_code)] // Calls of NVRTC.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use espalier_interface::{ErrorCode, PluginError, Result};

use crate::functions::Nvrtc;
use crate::kernel_files::{KernelFiles, Stem};
use crate::libraries::version_of;
use crate::sources::{HEADERS, Source};

/// The compiler for one kind of card.
pub struct Compiler {
    nvrtc: std::result::Result<&'static Nvrtc, &'static str>,
    /// Its version, 0.0 where there is none.
    version: [i32; 2],
    /// What code is made for.
    target: Target,
    files: KernelFiles,
}

/// What code is made for.
struct Target {
    /// `sm_90`, or `compute_80` for a text of which the driver makes the card's code.
    name: String,
    is_text: bool,
}

impl Target {
    /// Cards of a compute capability.
    fn of([major, minor]: [i32; 2]) -> Self {
        Target {
            name: format!("sm_{major}{minor}"),
            is_text: false,
        }
    }

    /// Cards of compute capability 8.0, to be run by one of `capability`. Cards of 8.x run the same
    /// code.
    fn oldest([major, _]: [i32; 2]) -> Self {
        match major {
            8 => Target::of([8, 0]),
            _ => Target {
                name: "compute_80".to_owned(),
                is_text: true,
            },
        }
    }

    /// The ending of a file of it.
    fn ending(&self) -> &'static str {
        if self.is_text { "ptx" } else { "cubin" }
    }
}

/// Options of every compilation. Contractions would round differently from the formulas; kernels
/// fuse where they say so.
const OPTIONS: &[&str] = &["--fmad=false", "--std=c++17"];

/// The option with which the log tells each kernel's registers, memory and spills.
const TELL: &str = "--ptxas-options=-v";

/// NVRTC's code for an option that it does not know, such as a newer kind of card.
const UNKNOWN_OPTION: u32 = 5;

/// A compiled source.
struct Compiled {
    code: Vec<u8>,
    log: String,
}

fn failed(what: String) -> PluginError {
    PluginError::new(ErrorCode::DEVICE, what)
}

/// A text for C. No source, name or option has a zero in it.
fn text(of: &str) -> CString {
    CString::new(of.replace('\0', "")).unwrap_or_default()
}

impl Compiler {
    /// A compiler for cards of a compute capability, with a folder of compiled kernels.
    pub fn new(
        nvrtc: std::result::Result<&'static Nvrtc, &'static str>,
        capability: [i32; 2],
        cache: Option<PathBuf>,
    ) -> Self {
        Compiler {
            nvrtc,
            version: nvrtc.map_or([0; 2], version_of),
            target: Target::of(capability),
            files: KernelFiles {
                cache,
                shipped: None,
            },
        }
    }

    /// The same, with a folder of kernels that are used whatever compiler made them.
    pub fn with_shipped(mut self, shipped: Option<PathBuf>) -> Self {
        self.files.shipped = shipped;
        self
    }

    /// The same, with code of the oldest kind of card that is served. Newer ones run what their
    /// driver makes of it.
    pub fn of_oldest(mut self, capability: [i32; 2]) -> Self {
        self.target = Target::oldest(capability);
        self
    }

    /// What code is made for, such as `sm_90`.
    pub fn target(&self) -> &str {
        &self.target.name
    }

    /// The folders of compiled kernels.
    pub fn files(&self) -> &KernelFiles {
        &self.files
    }

    /// The folder where code is kept.
    pub fn cache(&self) -> Option<&Path> {
        self.files.cache.as_deref()
    }

    /// The code of `source` with definitions before it, if it is on disk.
    pub fn kept(&self, source: Source, definitions: &str) -> Option<Vec<u8>> {
        let version = self.nvrtc.is_ok().then_some(self.version);
        self.files.find(&self.stem(source, definitions), version)
    }

    /// Requires that code can be made.
    ///
    /// # Errors
    /// `DEVICE` where there is no compiler, with how to get one.
    pub fn check(&self) -> Result<()> {
        self.nvrtc.map(drop).map_err(|why| failed(why.to_owned()))
    }

    /// The code of `source` with definitions before it, compiled now.
    ///
    /// # Errors
    /// `DEVICE` where there is no compiler, or it refuses the source, with its log.
    pub fn compiled(&self, source: Source, definitions: &str) -> Result<Vec<u8>> {
        Ok(self.compile(source, definitions, &[])?.code)
    }

    /// Keeps that code on disk, if there is a folder for it.
    ///
    /// # Errors
    /// Where it cannot be written, with the folder and what to do.
    pub fn keep(
        &self,
        source: Source,
        definitions: &str,
        code: &[u8],
    ) -> std::result::Result<(), String> {
        let stem = self.stem(source, definitions);
        let kept = self.files.keep(&stem, self.version, code);
        kept.map_err(|why| {
            let folder = self.files.cache.as_deref().unwrap_or(Path::new(""));
            format!(
                "compiled kernels cannot be kept in {}: {why}; they are compiled again in the next run, unless backend.cuda.cache_dir names a folder that can be written",
                folder.display()
            )
        })
    }

    /// The name of that code's files, by everything that it depends on but the compiler.
    pub fn stem(&self, source: Source, definitions: &str) -> Stem {
        let parts = OPTIONS.iter().copied().chain([definitions, source.text]);
        let headers = HEADERS.iter().map(|header| header.text);
        let target = (self.target(), self.target.ending());
        Stem::new(source.name, target, parts.chain(headers))
    }

    /// The compiler's version.
    pub fn version(&self) -> [i32; 2] {
        self.version
    }

    /// What the compiler tells about each kernel of `source`: registers, memory, spills.
    ///
    /// # Errors
    /// As [`Compiler::compiled`].
    pub fn told(&self, source: Source, definitions: &str) -> Result<String> {
        let compiled = self.compile(source, definitions, &[TELL])?;
        Ok(compiled.log)
    }

    fn compile(&self, source: Source, definitions: &str, more: &[&str]) -> Result<Compiled> {
        let nvrtc = self.nvrtc.map_err(|why| failed(why.to_owned()))?;
        // Definitions may name lines of their own.
        let line = format!("#line 1 \"{}\"", source.name);
        let whole = text(&format!("{definitions}\n{line}\n{}", source.text));
        let name = text(source.name);
        let headers: Vec<CString> = HEADERS.iter().map(|header| text(header.text)).collect();
        let names: Vec<CString> = HEADERS.iter().map(|header| text(header.name)).collect();
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ptr()).collect()
        };
        let target = format!("--gpu-architecture={}", self.target.name);
        let options = [target.as_str()].into_iter();
        let options = options.chain(OPTIONS.iter().chain(more).copied());
        let options: Vec<CString> = options.map(text).collect();
        let mut program = null_mut();
        // SAFETY: all texts live until the program is destroyed, and NVRTC writes as many bytes as
        // it said.
        unsafe {
            let code = (nvrtc.create)(
                &raw mut program,
                whole.as_ptr(),
                name.as_ptr(),
                HEADERS.len() as i32,
                pointers(&headers).as_ptr(),
                pointers(&names).as_ptr(),
            );
            if code != 0 {
                return Err(failed(format!("NVRTC took no program, code {code}")));
            }
            let options = pointers(&options);
            let code = (nvrtc.compile)(program, options.len() as i32, options.as_ptr());
            let log = bytes(program, nvrtc.log_bytes, nvrtc.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches(['\0', '\n']).to_owned();
            let made = match code {
                0 if self.target.is_text => bytes(program, nvrtc.ptx_bytes, nvrtc.ptx),
                0 => bytes(program, nvrtc.cubin_bytes, nvrtc.cubin),
                UNKNOWN_OPTION => Err(format!(
                    "code {code}: {log}; a newer one may know this card: `pip install --upgrade nvidia-cuda-nvrtc`"
                )),
                _ => Err(format!("code {code}: {log}")),
            };
            (nvrtc.destroy)(&raw mut program);
            let made = made.map(|code| Compiled { code, log });
            made.map_err(|why| {
                let [major, minor] = self.version;
                failed(format!(
                    "NVRTC {major}.{minor} does not compile {} for {}, {why}",
                    source.name, self.target.name
                ))
            })
        }
    }
}

type Program = cudarc::nvrtc::sys::nvrtcProgram;

/// What two functions of NVRTC give: a size, and as many bytes.
///
/// # Safety
/// The program lives.
unsafe fn bytes(
    program: Program,
    size: unsafe extern "C" fn(Program, *mut usize) -> u32,
    get: unsafe extern "C" fn(Program, *mut c_char) -> u32,
) -> std::result::Result<Vec<u8>, String> {
    let mut count = 0;
    // SAFETY: the caller's; NVRTC writes `count` bytes.
    unsafe {
        let code = size(program, &raw mut count);
        let mut made = vec![0u8; count];
        match code.max(get(program, made.as_mut_ptr().cast())) {
            0 => Ok(made),
            code => Err(format!("code {code}")),
        }
    }
}
