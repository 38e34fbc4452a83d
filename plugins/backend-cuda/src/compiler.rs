//! A kernel's source -> the card's code, compiled once and kept on disk.
#![allow(unsafe_code)] // Calls of NVRTC.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::{fmt::Write, fs, process};

use espalier_interface::{ErrorCode, PluginError, Result};
use sha2::{Digest, Sha256};

use crate::functions::Nvrtc;
use crate::sources::{HEADERS, Source};

/// The compiler for one kind of card.
pub struct Compiler {
    nvrtc: std::result::Result<&'static Nvrtc, &'static str>,
    /// Its version.
    version: [i32; 2],
    /// `sm_80`.
    architecture: String,
    /// Folder of compiled kernels.
    cache: Option<PathBuf>,
}

/// Options of every compilation. Contractions would round differently from the formulas; kernels
/// fuse where they say so.
const OPTIONS: &[&str] = &["--fmad=false", "--std=c++17"];

/// The option with which the log tells each kernel's registers, memory and spills.
const TELL: &str = "--ptxas-options=-v";

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
    /// A compiler for cards of a compute capability.
    pub fn new(
        nvrtc: std::result::Result<&'static Nvrtc, &'static str>,
        capability: [i32; 2],
        cache: Option<PathBuf>,
    ) -> Self {
        let mut version = [0; 2];
        if let Ok(nvrtc) = nvrtc {
            let [major, minor] = &mut version;
            // SAFETY: NVRTC writes two numbers.
            unsafe { (nvrtc.version)(&raw mut *major, &raw mut *minor) };
        }
        Compiler {
            nvrtc,
            version,
            architecture: format!("sm_{}{}", capability[0], capability[1]),
            cache,
        }
    }

    /// The code of `source` with definitions before it.
    ///
    /// # Errors
    /// `DEVICE` where there is no compiler, or it refuses the source, with its log.
    pub fn compiled(&self, source: Source, definitions: &str) -> Result<Vec<u8>> {
        let file = self.cached_file(source, definitions);
        if let Some(code) = file.as_deref().and_then(|file| fs::read(file).ok()) {
            return Ok(code);
        }
        let code = self.compile(source, definitions, &[])?.code;
        // A kernel that cannot be kept is compiled again next time.
        if let Some(file) = file {
            let _ = keep(&file, &code);
        }
        Ok(code)
    }

    /// Where the code is kept: by everything that it depends on.
    fn cached_file(&self, source: Source, definitions: &str) -> Option<PathBuf> {
        let folder = self.cache.as_ref()?;
        let mut hash = Sha256::new();
        let [major, minor] = self.version;
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        part(&format!("{major}.{minor}"));
        part(&self.architecture);
        OPTIONS.iter().for_each(|option| part(option));
        part(definitions);
        part(source.text);
        HEADERS.iter().for_each(|header| part(header.text));
        let name = hash
            .finalize()
            .iter()
            .fold(String::new(), |mut name, byte| {
                let _ = write!(name, "{byte:02x}");
                name
            });
        let stem = source.name.trim_end_matches(".cu");
        Some(folder.join(format!(
            "{stem}-{}-{}.cubin",
            self.architecture,
            &name[..32]
        )))
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
        let architecture = format!("--gpu-architecture={}", self.architecture);
        let options = [architecture.as_str()].into_iter();
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
            let log = String::from_utf8_lossy(&log).into_owned();
            let made = if code == 0 {
                bytes(program, nvrtc.cubin_bytes, nvrtc.cubin).map(|code| Compiled { code, log })
            } else {
                Err(format!("code {code}: {log}"))
            };
            (nvrtc.destroy)(&raw mut program);
            made.map_err(|why| {
                let [major, minor] = self.version;
                failed(format!(
                    "NVRTC {major}.{minor} does not compile {} for {}, {why}",
                    source.name, self.architecture
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

/// Writes a file whole or not at all.
fn keep(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let draft = file.with_extension(format!("draft-{}", process::id()));
    fs::write(&draft, code)?;
    fs::rename(&draft, file)
}
