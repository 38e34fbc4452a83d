//! `kernel_records NVRTC NVDISASM OUT`: compiles every kernel with the NVRTC in a folder for six
//! kinds of cards, prints and writes registers, spills and instructions, and fails where a kernel
//! spills or lacks instructions that its speed stands on.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A developer's tool prints.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use espalier_backend_cuda::{KernelRecord, Recorder};
use espalier_tests_gpu::{ARCHITECTURES, Instructions, instructions, records};

/// What stands above the table.
const HEAD: &str = "\
# Kernels of the backend `cuda`

`cargo xtask gpu compile` writes this file: what NVIDIA's compiler says of every kernel, without a
card. Columns are kinds of cards; a number is the most registers that a kernel of the row takes, of
255. A source is compiled once for each row: with the head sizes, directions or format that the row
names; `two blocks` is for cards on which two blocks share a multiprocessor. Spills are bytes of
registers kept in memory for want of more, over all columns; they fail the command. `tensor` and
`16 bytes` count instructions for sm_80, as NVIDIA's disassembler lists them: products of tensor
cores, and loads, stores and copies of 16 bytes of the card's memory. The command fails where one is
missing in a source that stands on it.
";

/// Sources whose products are those of tensor cores.
const TENSOR: [&str; 4] = [
    "flash_dkv.cu",
    "flash_dq.cu",
    "flash_forward.cu",
    "product_bf16.cu",
];

/// Sources that read or write 16 bytes at once.
const WIDE: [&str; 14] = [
    "arithmetic.cu",
    "decode.cu",
    "embedding.cu",
    "few_rows.cu",
    "finish.cu",
    "flash_dkv.cu",
    "flash_dq.cu",
    "flash_forward.cu",
    "flat.cu",
    "layer_norm.cu",
    "product_bf16.cu",
    "rms_norm.cu",
    "rope.cu",
    "rows.cu",
];

/// Parts of the names of rows that cannot: rows of matrices that begin anywhere, and codes
/// of three bits and vectors of no power of two, which are read one by one.
const NARROW: [&str; 3] = ["unaligned", "bits:3,", "vectors of 6"];

/// What a row says.
#[derive(Default)]
struct Row {
    /// The kernels of each kind of card.
    columns: Vec<Vec<KernelRecord>>,
    instructions: Instructions,
}

/// The rows, by source and name.
type Rows = BTreeMap<(&'static str, String), Row>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [nvrtc, nvdisasm, out] = &arguments[..] else {
        return Err("expected: kernel_records NVRTC NVDISASM OUT".into());
    };
    let threads = thread::available_parallelism()?.get();
    let mut rows = Rows::new();
    for capability in ARCHITECTURES {
        for record in records(nvrtc, capability, threads)? {
            let row = (record.variant.source(), record.variant.name.clone());
            rows.entry(row).or_default().columns.push(record.kernels);
        }
        println!("compiled for {}", architecture(capability));
    }
    for (variant, instructions) in instructions([nvrtc, nvdisasm], threads)? {
        let row = (variant.source(), variant.name.clone());
        rows.entry(row).or_default().instructions = instructions;
    }
    let [major, minor] = Recorder::new(nvrtc, ARCHITECTURES[0])?.version();
    let written = page(&rows, &format!("{major}.{minor}"));
    print!("{written}");
    write(out, &written)?;
    let wrong = rows
        .iter()
        .filter_map(spills)
        .chain(rows.iter().filter_map(lacks));
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("; ").into())
}

fn architecture([major, minor]: [i32; 2]) -> String {
    format!("sm_{major}{minor}")
}

/// The page of all rows.
fn page(rows: &Rows, version: &str) -> String {
    let mut page = format!("{HEAD}\nNVRTC {version}.\n\n| source | for | kernels | spills |");
    page += " tensor | 16 bytes |";
    for capability in ARCHITECTURES {
        let _ = write!(page, " {} |", architecture(capability));
    }
    page += &format!(
        "\n|---|---|---:|---:|---:|---:|{}\n",
        "---:|".repeat(ARCHITECTURES.len())
    );
    for (
        (source, name),
        Row {
            columns,
            instructions,
        },
    ) in rows
    {
        let kernels = columns.iter().map(Vec::len).max().unwrap_or(0);
        let spills: u32 = columns
            .iter()
            .flatten()
            .map(|kernel| kernel.spill_bytes)
            .sum();
        let Instructions { tensor, wide } = instructions;
        let _ = write!(
            page,
            "| `{source}` | {name} | {kernels} | {spills} | {tensor} | {wide} |"
        );
        for column in columns {
            let most = column.iter().map(|kernel| kernel.registers).max();
            let most = most.map_or("-".to_owned(), |most| most.to_string());
            let _ = write!(page, " {most} |");
        }
        page += "\n";
    }
    page
}

/// The kernels of a row that spill.
fn spills(((source, name), Row { columns, .. }): (&(&str, String), &Row)) -> Option<String> {
    let mut found = Vec::new();
    for (column, capability) in columns.iter().zip(ARCHITECTURES) {
        let spilling = column.iter().filter(|kernel| kernel.spill_bytes > 0);
        found.extend(spilling.map(|kernel| {
            let (name, bytes) = (&kernel.name, kernel.spill_bytes);
            format!("{name} {bytes} bytes on {}", architecture(capability))
        }));
    }
    (!found.is_empty()).then(|| format!("{source} {name} spills: {}", found.join(", ")))
}

/// What a row lacks of the instructions that its source stands on.
fn lacks(((source, name), row): (&(&str, String), &Row)) -> Option<String> {
    let Instructions { tensor, wide } = row.instructions;
    let is_narrow = NARROW.iter().any(|part| name.contains(part));
    let is_wide = WIDE.contains(source) && !is_narrow;
    let expected = [
        (TENSOR.contains(source), tensor, "product of tensor cores"),
        (is_wide, wide, "access of 16 bytes"),
    ];
    let missing = expected
        .iter()
        .filter(|(is_expected, count, _)| *is_expected && *count == 0);
    let missing: Vec<&str> = missing.map(|(_, _, what)| *what).collect();
    (!missing.is_empty()).then(|| format!("{source} {name} has no {}", missing.join(", no ")))
}

fn write(out: &Path, page: &str) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(out, page).map_err(|why| format!("cannot write {}: {why}", out.display()).into())
}
