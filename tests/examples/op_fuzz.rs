//! Random cases of each op on several backends, compared with the oracle of the kit of ops and with
//! each other; a table at the end.
//!
//! Usage: `cargo run --release -p espalier-tests --example op_fuzz -- [--backends cpu,tch,candle]
//! [--plugin-dir DIR].. [--cases 1000] [--seed 1] [--op NAME] [--threads 2]`
//!
//! A backend may have options: `cpu:isa=avx2`. `--op linear` takes the ops whose name has this in
//! it, `--op =linear` that op alone. `--case SEED` runs the cases of one seed, as a disagreement
//! names it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A tool of the developer's.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use espalier_conformance::ops::{self, Answer, OpCheck, OpTrial, Tally};
use espalier_interface::{Backend, Device, Services};
use espalier_registry::{Registry, SearchPath};
use espalier_system::threads::HostServices;
use espalier_tests as _;
use serde_json::{Map, Value as Json};

/// Time between lines of progress.
const PAUSE: Duration = Duration::from_secs(10);
/// Wrong cases that are printed.
const MOST_SHOWN: u64 = 40;

/// What the command line asks for.
struct Asked {
    backends: Vec<String>,
    plugin_dirs: Vec<PathBuf>,
    cases: u64,
    seed: u64,
    op: String,
    case: Option<u64>,
    threads: usize,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked {
        backends: vec!["cpu".to_owned()],
        plugin_dirs: Vec::new(),
        cases: 1000,
        seed: 1,
        op: String::new(),
        case: None,
        threads: 2,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}"));
        match word.as_str() {
            "--backends" => asked.backends = value.split(',').map(str::to_owned).collect(),
            "--plugin-dir" => asked.plugin_dirs.push(PathBuf::from(value)),
            "--cases" => asked.cases = number()?,
            "--seed" => asked.seed = number()?,
            "--op" => asked.op = value,
            "--case" => asked.case = Some(number()?),
            "--threads" => asked.threads = number()? as usize,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(asked)
}

impl Asked {
    fn ops(&self) -> Vec<&'static OpCheck> {
        let fits = |op: &&OpCheck| match self.op.strip_prefix('=') {
            Some(name) => op.name == format!("op.{name}"),
            None => op.name.contains(&self.op),
        };
        ops::all().filter(fits).collect()
    }

    /// The command that runs the cases of one seed again.
    fn again(&self, op: &OpCheck, case: u64) -> String {
        let name = op.name.strip_prefix("op.").unwrap_or(op.name);
        let dirs = self.plugin_dirs.iter();
        let dirs = dirs.map(|dir| format!("--plugin-dir {} ", dir.display()));
        format!(
            "cargo run --release -p espalier-tests --example op_fuzz -- --backends {} {}--op ={name} \
             --case {case}",
            self.backends.join(","),
            dirs.collect::<String>()
        )
    }
}

fn main() -> ExitCode {
    match asked().and_then(|asked| fuzz(&asked)) {
        Ok(tally) => {
            println!("\n{tally}");
            let (cases, wrong, refused) = (tally.cases(), tally.wrong(), tally.not_offered());
            println!("{cases} cases, {wrong} wrong, {refused} refused");
            ExitCode::from(u8::from(wrong > 0 || cases == 0))
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

fn fuzz(asked: &Asked) -> Result<Tally, String> {
    let services = HostServices::start(Some(asked.threads)).map_err(|error| error.to_string())?;
    let dirs = asked.plugin_dirs.iter().cloned();
    let dirs = dirs.map(|dir| ("--plugin-dir", dir));
    let registry = Registry::discover(&SearchPath::new(dirs));
    let backends = asked.backends.iter();
    let backends = backends.map(|spec| backend(&registry, spec, services));
    // Backends outlive their devices.
    let backends = backends.collect::<Result<Vec<_>, _>>()?;
    let opened = backends.iter().map(|backend| backend.open(0));
    let opened: Vec<Box<dyn Device>> = opened.collect::<Result<_, _>>().map_err(|e| e.message)?;
    let named = asked.backends.iter().map(String::as_str);
    let devices: Vec<(&str, &dyn Device)> = named
        .clone()
        .zip(opened.iter().map(AsRef::as_ref))
        .collect();
    let (ops, mut tally) = (asked.ops(), Tally::new(named));
    let cases = asked.case.map_or(asked.cases, |_| ops.len() as u64);
    let (start, mut shown) = (Instant::now(), Instant::now());
    for index in 0..cases {
        let op = ops[index as usize % ops.len()];
        let seed = asked.case.unwrap_or((asked.seed << 32) + index);
        for trial in ops::trials(&devices, op, seed) {
            tally.add(op.name, &trial);
            if asked.case.is_some() {
                describe(op, &trial, &devices);
            }
            report(asked, (op, seed), &trial, &tally);
        }
        if shown.elapsed() > PAUSE {
            shown = Instant::now();
            let (wrong, secs) = (tally.wrong(), start.elapsed().as_secs());
            println!("{} of {cases} seeds, {wrong} wrong, {secs} s", index + 1);
        }
    }
    Ok(tally)
}

/// The backend that `spec` names, `NAME` or `NAME:OPTION=VALUE:..`.
fn backend(
    registry: &Registry,
    spec: &str,
    services: &'static dyn Services,
) -> Result<Box<dyn Backend>, String> {
    let mut parts = spec.split(':');
    let name = parts.next().unwrap_or_default();
    let mut options = Map::new();
    for part in parts {
        let (key, value) = part.split_once('=').ok_or(format!("{spec}: {part}"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Json::from(value));
        options.insert(key.to_owned(), value);
    }
    let made = registry.create_backend(name, &options, services);
    let (backend, _) = made.map_err(|error| format!("{spec}: {error}"))?;
    Ok(backend)
}

/// Prints what is wrong in a trial, and the command that repeats it.
fn report(asked: &Asked, (op, seed): (&OpCheck, u64), trial: &OpTrial, tally: &Tally) {
    if trial.faults().next().is_none() || tally.wrong() > MOST_SHOWN {
        return;
    }
    println!("WRONG {}: {}", op.name, trial.case);
    for fault in trial.faults() {
        println!("    {fault}");
    }
    println!("    {}", asked.again(op, seed));
}

/// Prints what came of a trial.
fn describe(op: &OpCheck, trial: &OpTrial, devices: &[(&str, &dyn Device)]) {
    println!("{}: {}", op.name, trial.case);
    for ((name, _), answer) in devices.iter().zip(&trial.answers) {
        match answer {
            Answer::Within(share) => println!("    {name}: {share:.3} of what is allowed"),
            Answer::NotOffered(why) => println!("    {name}: not offered: {why}"),
            Answer::Failed(_) => println!("    {name}: wrong"),
        }
    }
}
