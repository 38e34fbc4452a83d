//! `kernel_records NVRTC OUT`: compiles every kernel with the NVRTC in a folder for six kinds of
//! cards, prints and writes registers and spills, and fails where a kernel spills.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A developer's tool prints.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use espalier_backend_cuda::{KernelRecord, Recorder};
use espalier_tests_gpu::{ARCHITECTURES, records};

/// What stands above the table.
const HEAD: &str = "\
# Kernels of the backend `cuda`

`cargo xtask gpu compile` writes this file: what NVIDIA's compiler says of every kernel, without a
card. Columns are kinds of cards; a number is the most registers that a kernel of the row takes, of
255. A source is compiled once for each row: with the head sizes, directions or format that the row
names; `two blocks` is for cards on which two blocks share a multiprocessor. Spills are bytes of
registers kept in memory for want of more, over all columns; they fail the command.
";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [nvrtc, out] = &arguments[..] else {
        return Err("expected: kernel_records NVRTC OUT".into());
    };
    let threads = thread::available_parallelism()?.get();
    let mut rows = BTreeMap::<(&str, String), Vec<Vec<KernelRecord>>>::new();
    for capability in ARCHITECTURES {
        for record in records(nvrtc, capability, threads)? {
            let row = (record.variant.source(), record.variant.name.clone());
            rows.entry(row).or_default().push(record.kernels);
        }
        println!("compiled for {}", architecture(capability));
    }
    let [major, minor] = Recorder::new(nvrtc, ARCHITECTURES[0])?.version();
    let written = page(&rows, &format!("{major}.{minor}"));
    print!("{written}");
    write(out, &written)?;
    let spilling: Vec<String> = rows.iter().filter_map(spills).collect();
    if spilling.is_empty() {
        return Ok(());
    }
    Err(format!("kernels spill: {}", spilling.join("; ")).into())
}

fn architecture([major, minor]: [i32; 2]) -> String {
    format!("sm_{major}{minor}")
}

/// The page of all rows.
fn page(rows: &BTreeMap<(&str, String), Vec<Vec<KernelRecord>>>, version: &str) -> String {
    let mut page = format!("{HEAD}\nNVRTC {version}.\n\n| source | for | kernels | spills |");
    for capability in ARCHITECTURES {
        let _ = write!(page, " {} |", architecture(capability));
    }
    page += &format!(
        "\n|---|---|---:|---:|{}\n",
        "---:|".repeat(ARCHITECTURES.len())
    );
    for ((source, name), columns) in rows {
        let kernels = columns.iter().map(Vec::len).max().unwrap_or(0);
        let spills: u32 = columns
            .iter()
            .flatten()
            .map(|kernel| kernel.spill_bytes)
            .sum();
        let _ = write!(page, "| `{source}` | {name} | {kernels} | {spills} |");
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
fn spills(row: (&(&str, String), &Vec<Vec<KernelRecord>>)) -> Option<String> {
    let ((source, name), columns) = row;
    let mut found = Vec::new();
    for (column, capability) in columns.iter().zip(ARCHITECTURES) {
        let spilling = column.iter().filter(|kernel| kernel.spill_bytes > 0);
        found.extend(spilling.map(|kernel| {
            let (name, bytes) = (&kernel.name, kernel.spill_bytes);
            format!("{name} {bytes} bytes on {}", architecture(capability))
        }));
    }
    (!found.is_empty()).then(|| format!("{source} {name}: {}", found.join(", ")))
}

fn write(out: &Path, page: &str) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(out, page).map_err(|why| format!("cannot write {}: {why}", out.display()).into())
}
