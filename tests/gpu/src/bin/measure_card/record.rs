//! What parts gave -> one JSON file, written after each, and a table for people.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Map, Value as Json, json};

use crate::setting::Setting;

/// How a part ended.
pub enum Ending {
    /// It was done.
    Done,
    /// It failed, with its last words.
    Failed(String),
    /// It was ended after these seconds.
    TimedOut(u64),
}

/// What a part gave.
pub struct Done {
    /// The part's name.
    pub name: &'static str,
    /// How it ended.
    pub ending: Ending,
    /// Seconds that it took.
    pub secs: f64,
    /// Its results until then.
    pub rows: Vec<Json>,
}

impl Done {
    /// A part without results yet.
    pub fn new(name: &'static str) -> Self {
        Done {
            name,
            ending: Ending::Done,
            secs: 0.0,
            rows: Vec::new(),
        }
    }

    /// A part that failed before it began.
    pub fn failed(name: &'static str, why: &str) -> Self {
        Done {
            ending: Ending::Failed(why.to_owned()),
            ..Done::new(name)
        }
    }

    /// How it ended, in a line or more.
    pub fn told(&self) -> String {
        let rows = self.rows.len();
        match &self.ending {
            Ending::Done => format!("done, {rows} rows, {:.1} s", self.secs),
            Ending::Failed(why) => format!("FAILED after {rows} rows: {why}"),
            Ending::TimedOut(secs) => format!("ENDED after its limit of {secs} s, {rows} rows"),
        }
    }

    fn to_json(&self) -> Json {
        let mut part = json!({"status": "done", "secs": self.secs});
        match &self.ending {
            Ending::Done => {}
            Ending::Failed(why) => {
                part["status"] = json!("failed");
                part["why"] = json!(why);
            }
            Ending::TimedOut(secs) => {
                part["status"] = json!("timed out");
                part["why"] = json!(format!("it took longer than its limit of {secs} s"));
            }
        }
        part["rows"] = json!(self.rows);
        part
    }
}

/// The results of a run.
pub struct Record {
    /// When it began.
    pub begin: Instant,
    run: u8,
    out: PathBuf,
    date: String,
    card: String,
    head: Json,
    parts: Vec<Done>,
}

impl Record {
    /// The record of a run that begins.
    ///
    /// # Errors
    /// Where the pack's description cannot be read.
    pub fn new(run: u8, setting: &Setting) -> Result<Self> {
        let described = setting.programs.join("pack.json");
        let pack: Json = match fs::read(&described) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not JSON", described.display()))?,
            Err(_) => Json::Null,
        };
        let date = Command::new("date").args(["-u", "+%F"]).output();
        let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        Ok(Record {
            begin: Instant::now(),
            run,
            out: setting.out.clone(),
            date: date.unwrap_or_else(|_| "undated".to_owned()),
            card: "unknown".to_owned(),
            head: json!({
                "run": run,
                "small": setting.is_small,
                "pack": pack,
                "kernels": setting.kernels,
            }),
            parts: Vec::new(),
        })
    }

    /// Where the results are.
    pub fn path(&self) -> PathBuf {
        let name = format!("{}-{}-run{}.json", self.date, self.card, self.run);
        self.out.join(name)
    }

    /// Adds a part and writes the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn add(&mut self, done: Done) -> Result<()> {
        let named = done.rows.iter().find_map(|row| row["card"].as_str());
        if let Some(card) = named {
            self.card = file_name(card);
        }
        self.parts.push(done);
        self.compare_with_ceilings();
        let mut parts = Map::new();
        for part in &self.parts {
            parts.insert(part.name.to_owned(), part.to_json());
        }
        let mut all = self.head.clone();
        all["date"] = json!(self.date);
        all["secs"] = json!(self.begin.elapsed().as_secs_f64());
        all["parts"] = Json::Object(parts);
        let path = self.path();
        let text = serde_json::to_string_pretty(&all)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Puts each op's least time at the measured ceilings over its time beside it.
    fn compare_with_ceilings(&mut self) {
        let highest = |key: &str| {
            let rows = self.parts.iter().filter(|part| part.name == "ceilings");
            let found = rows.flat_map(|part| &part.rows);
            let found = found.filter_map(|row| row[key].as_f64());
            found.max_by(f64::total_cmp)
        };
        let ceilings = [highest("bytes_per_sec"), highest("flops_per_sec")];
        let [Some(bytes_per_sec), Some(flops_per_sec)] = ceilings else {
            return;
        };
        let is_timed = |part: &&mut Done| ["ops", "decoders"].contains(&part.name);
        for part in self.parts.iter_mut().filter(is_timed) {
            for row in &mut part.rows {
                let of = |key: &str| row[key].as_f64();
                if let (Some(secs), Some(bytes), Some(flops)) =
                    (of("secs"), of("bytes"), of("flops"))
                {
                    let least = [bytes / bytes_per_sec, flops / flops_per_sec];
                    let least = least.into_iter().max_by(f64::total_cmp).unwrap_or_default();
                    row["of_ceiling"] = json!(least / secs);
                }
            }
        }
    }

    /// The names of the parts that did not end well.
    pub fn failed(&self) -> Vec<&str> {
        let failed = |part: &&Done| !matches!(part.ending, Ending::Done);
        self.parts
            .iter()
            .filter(failed)
            .map(|part| part.name)
            .collect()
    }

    /// All rows, a line each; ops as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let _ = writeln!(text, "\n== {}", part.name);
            for row in &part.rows {
                let line = op_line(row).unwrap_or_else(|| row.to_string());
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

/// An op's row for people.
fn op_line(row: &Json) -> Option<String> {
    let (op, secs) = (row["op"].as_str()?, row["secs"].as_f64()?);
    let rate = |key: &str| row[key].as_f64().unwrap_or_default() / secs / 1e12;
    let part = row["of_ceiling"].as_f64();
    let part = part.map_or(String::new(), |part| {
        format!("{:5.1} % of ceiling", 100.0 * part)
    });
    Some(format!(
        "{op:52} {:10.1} us {:7.2} TB/s {:7.1} TFLOP/s {part}",
        1e6 * secs,
        rate("bytes"),
        rate("flops"),
    ))
}

/// A card's name as part of a file's.
fn file_name(card: &str) -> String {
    let words = card.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}
