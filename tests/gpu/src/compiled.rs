//! NVIDIA's compiler, without a card -> registers, spills and instructions of every kernel.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use espalier_backend_cuda::{KernelRecord, Recorder, Variant, code_variants, variants};
use espalier_conformance::ops;
use espalier_hqq::HQQ;
use espalier_int4::INT4;
use espalier_interface::format::Format;
use espalier_interface::{
    Component, ErrorCode, Instance, Options, PluginError, Quantizer, Result, Serial,
};
use espalier_mxfp4::{MXFP4, NVFP4};
use espalier_nf4::{FP4, INT8, NF4};
use serde_json::{Value as Json, json};

use crate::disassembled::Instructions;
use crate::step_formats::step_formats;

/// Compute capabilities of the cards that kernels are compiled for.
pub const ARCHITECTURES: [[i32; 2]; 6] = [[8, 0], [8, 6], [8, 9], [9, 0], [10, 0], [12, 0]];

/// Shared memory of a multiprocessor of such a card, in bytes (CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability").
fn shared_bytes(capability: [i32; 2]) -> usize {
    let kib = match capability {
        [8, 0] => 164,
        [9 | 10, _] => 228,
        _ => 100,
    };
    kib << 10
}

/// The shape of the weights whose formats are asked for.
const SHAPE: [u64; 2] = [256, 512];

/// Another one, of another size. Decoders that depend on the shape differ.
const OTHER_SHAPE: [u64; 2] = [768, 1024];

/// What the compiler tells of a compilation for one kind of card.
pub struct Record {
    /// The compilation.
    pub variant: Variant,
    /// Its kernels; none where the compilation is not for such cards.
    pub kernels: Vec<KernelRecord>,
}

/// The folder of the NVRTC that `cargo xtask gpu compile` fetches, if it is there.
pub fn nvrtc() -> Option<PathBuf> {
    let program = std::env::current_exe().expect("a program is a file");
    let target = program
        .ancestors()
        .find(|folder| folder.ends_with("release") || folder.ends_with("debug"))?
        .parent()?;
    let folder = target.join("nvrtc/nvidia/cu13/lib");
    folder.is_dir().then_some(folder)
}

/// The formats of the shipped quantizers; see [`quantizers`].
///
/// # Panics
/// Where a quantizer refuses its options.
pub fn formats() -> Vec<(String, Format)> {
    formats_of(SHAPE)
}

/// The same of weights of a shape.
fn formats_of(shape: [u64; 2]) -> Vec<(String, Format)> {
    let format = |(name, quantizer): (String, Box<dyn Quantizer>)| {
        let format = quantizer.format(shape);
        (name, format.expect("a shape that every quantizer has"))
    };
    quantizers().into_iter().map(format).collect()
}

/// The shipped quantizers, by what their formats are: every width of codes on both axes, and every
/// way to store a block's numbers.
///
/// # Panics
/// Where a quantizer refuses its options.
pub fn quantizers() -> Vec<(String, Box<dyn Quantizer>)> {
    let mut cases: Vec<(&Component, Json)> =
        vec![(&INT8, json!({})), (&MXFP4, json!({})), (&NVFP4, json!({}))];
    for quantizer in [&NF4, &FP4] {
        cases.extend([true, false].map(|double| (quantizer, json!({"double_quant": double}))));
    }
    for bits in [8, 6, 5, 4, 3, 2, 1] {
        cases.extend([0, 1].map(|axis| (&HQQ, json!({"bits": bits, "axis": axis}))));
    }
    for meta in ["f16", "bf16"] {
        cases.push((&HQQ, json!({"meta": meta})));
    }
    for meta in ["zero-8bit", "8bit"] {
        cases.push((&HQQ, json!({"profile": "2024-03", "meta": meta})));
    }
    for bits in [4, 3] {
        let set = |symmetric: bool| json!({"bits": bits, "group_size": 64, "symmetric": symmetric});
        cases.extend([false, true].map(|symmetric| (&INT4, set(symmetric))));
    }
    let named = |(quantizer, set): (&Component, Json)| {
        let made = made(quantizer, &set).expect("options that a quantizer has");
        let set = set.to_string().replace(['{', '}', '"'], "");
        let name = format!("{} {set}", quantizer.name);
        (name.trim().to_owned(), made)
    };
    cases.into_iter().map(named).collect()
}

/// The format of a quantizer for weights of a shape, with the options `set`, the others by default.
///
/// # Errors
/// Where the quantizer refuses the options or the shape.
///
/// # Panics
/// Where the component is no quantizer.
pub fn format(quantizer: &Component, set: &Json, shape: [u64; 2]) -> Result<Format> {
    made(quantizer, set)?.format(shape)
}

/// A quantizer with the options `set`, the others by default.
fn made(quantizer: &Component, set: &Json) -> Result<Box<dyn Quantizer>> {
    let mut options = Options::default();
    for option in quantizer.options {
        let value: Json = serde_json::from_str(option.default).expect("a default is JSON");
        let value = set.get(option.name).unwrap_or(&value).clone();
        options.0.insert(option.name.to_owned(), value);
    }
    let Instance::Quantizer(made) = (quantizer.create)(&options, Arc::new(Serial))? else {
        panic!("{} is no quantizer", quantizer.name)
    };
    Ok(made)
}

/// The compilations that are recorded: for the formats of the shipped quantizers, and for some that
/// are described by steps.
fn recorded() -> Result<Vec<Variant>> {
    let mut formats = formats();
    formats.extend(step_formats(SHAPE));
    variants(&formats)
}

/// Compiles every kernel for cards of a compute capability, on `threads` threads.
///
/// # Errors
/// The compiler's log where a source does not compile.
pub fn records(nvrtc: &Path, capability: [i32; 2], threads: usize) -> Result<Vec<Record>> {
    let recorder = Recorder::new(nvrtc, capability)?;
    let compiled = each_of(recorded()?, threads, |variant| {
        if is_for(variant, capability) {
            recorder.kernels(variant)
        } else {
            Ok(Vec::new())
        }
    })?;
    let records = compiled.into_iter();
    Ok(records
        .map(|(variant, kernels)| Record { variant, kernels })
        .collect())
}

/// Compiles what [`shipped`] lists with the NVRTC in a folder, on `threads` threads, into `folder`,
/// where option `kernels` finds it. Returns the number of files.
///
/// # Errors
/// The compiler's log where a source does not compile; where the folder cannot be written.
pub fn ship(nvrtc: &Path, capability: [i32; 2], folder: &Path, threads: usize) -> Result<usize> {
    let recorder = Recorder::new(nvrtc, capability)?;
    let all = shipped(&recorder, capability)?;
    let kept = each_of(all, threads, |variant| recorder.keep(variant, folder))?;
    Ok(kept.len())
}

/// The compilations with which cards of a compute capability need no compiler: those for formats
/// of shipped quantizers that serve weights of any shape, and for the packed weights of the kit of
/// ops.
///
/// # Errors
/// `UNSUPPORTED` for a format that has neither a description nor device code.
pub fn shipped(recorder: &Recorder, capability: [i32; 2]) -> Result<Vec<Variant>> {
    let stem = |variant: &Variant| recorder.stem(variant);
    let others = variants(&formats_of(OTHER_SHAPE))?;
    let others: HashSet<String> = others.iter().map(stem).collect();
    let mut all = variants(&formats())?;
    all.retain(|variant| others.contains(&stem(variant)));
    let mut of_kit = Vec::new();
    for (format, code) in ops::packed_formats() {
        match code {
            Some(code) => all.extend(code_variants(&format, Some(&code))?),
            None => of_kit.push(("kit".to_owned(), format)),
        }
    }
    all.extend(variants(&of_kit)?);
    let mut listed = HashSet::new();
    all.retain(|variant| is_for(variant, capability) && listed.insert(stem(variant)));
    Ok(all)
}

/// Whether a compilation is for cards of a compute capability.
fn is_for(variant: &Variant, capability: [i32; 2]) -> bool {
    variant.shared_bytes <= shared_bytes(capability)
}

/// The instructions of every compilation for cards of compute capability 8.0, as `nvdisasm` lists
/// them.
///
/// # Errors
/// As [`records`], and where `nvdisasm` fails.
pub fn instructions(
    [nvrtc, nvdisasm]: [&Path; 2],
    threads: usize,
) -> Result<Vec<(Variant, Instructions)>> {
    let recorder = Recorder::new(nvrtc, ARCHITECTURES[0])?;
    each_of(recorded()?, threads, |variant| {
        let code = recorder.code(variant)?;
        Instructions::of(nvdisasm, &code).map_err(|why| {
            let what = format!("{} {}: {why}", nvdisasm.display(), variant.source());
            PluginError::new(ErrorCode::DEVICE, what)
        })
    })
}

/// What `of` makes of compilations, on `threads` threads, sorted by source and name.
fn each_of<T: Send>(
    all: Vec<Variant>,
    threads: usize,
    of: impl Fn(&Variant) -> Result<T> + Sync,
) -> Result<Vec<(Variant, T)>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(variant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let made = of(variant);
                    let mut done = done.lock().expect("no thread panics with the lock");
                    done.push((variant.clone(), made));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_cached_key(|(variant, _)| (variant.source(), variant.name.clone()));
    let made = done.into_iter();
    made.map(|(variant, made)| Ok((variant, made?))).collect()
}
