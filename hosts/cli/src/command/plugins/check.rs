//! `host plugins check`: a library -> the conformance kit's findings on each of its components.

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use espalier_config::resolve;
use espalier_registry::{Registry, SearchPath};
use espalier_system::failure::UsageError;
use espalier_system::files::{FileKind, read_regular_text};
use espalier_trainer::conformance::{self, Check, Outcome, Report, Subject, Target};
use espalier_trainer::error::Error;
use serde_json::{Value as Json, json};

use crate::arguments::CheckArguments;
use crate::output::has_colours;

/// Checks every component, prints the findings and fails with the first one.
pub fn run(arguments: &CheckArguments, out: &mut dyn Write) -> Result<()> {
    let config = arguments.model_config.as_deref();
    let config = config.map(read_config).transpose()?;
    let sources = arguments.config.sources();
    let target = Target::find(&arguments.library, &arguments.component, sources)?;
    let resolved = resolve(&target.sources).map_err(Error::from)?;
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let mut reports = Vec::new();
    for name in &target.components {
        let component = registry.inspect(name).map_err(Error::from)?;
        let subject = Subject {
            registry: &registry,
            sources: &target.sources,
            name,
            config: config.as_ref(),
        };
        if arguments.json {
            let checked = conformance::check_only(&subject, &arguments.only, |_| ());
            reports.push(checked?);
            continue;
        }
        writeln!(out, "{name} ({}), {}", component.role, component.location())?;
        let mut written = Ok(());
        let report = conformance::check_only(&subject, &arguments.only, |check| {
            let line = write_check(check, out).and_then(|()| out.flush());
            written = std::mem::replace(&mut written, Ok(())).and(line);
        })?;
        written?;
        writeln!(out, "  {}\n", summary(&report))?;
        reports.push(report);
    }
    if arguments.json {
        let shown: Vec<Json> = reports.iter().map(as_json).collect();
        serde_json::to_writer_pretty(&mut *out, &shown)?;
        writeln!(out)?;
    }
    match reports.iter().find(|report| !report.passed()) {
        None => Ok(()),
        Some(report) => Err(conformance::failure(report, &registry).into()),
    }
}

fn read_config(path: &Path) -> Result<Json> {
    let usage = |message: String| {
        Error::Usage(UsageError {
            message: format!("--model-config {}: {message}", path.display()),
            next_step: "name the config.json of a small model".to_owned(),
        })
    };
    let text = read_regular_text(path, FileKind::JsonConfig);
    let text = text.map_err(|error| usage(error.to_string()))?;
    let config = serde_json::from_str(&text).map_err(|error| usage(error.to_string()))?;
    Ok(config)
}

fn write_check(check: &Check, out: &mut dyn Write) -> io::Result<()> {
    let (word, colour, text) = match &check.outcome {
        Outcome::Passed => ("ok", AnsiColor::Green, check.asserts),
        Outcome::Skipped(why) => ("skipped", AnsiColor::Yellow, why.as_str()),
        Outcome::Failed(_) => ("FAILED", AnsiColor::Red, check.asserts),
    };
    let style = if has_colours() {
        Style::new().fg_color(Some(colour.into()))
    } else {
        Style::new()
    };
    let name = check.name;
    writeln!(out, "  {style}{word:<8}{style:#} {name:<22} {text}")?;
    match &check.outcome {
        Outcome::Failed(reason) => writeln!(out, "           {reason}"),
        _ => Ok(()),
    }
}

/// The number of checks for each outcome.
fn summary(report: &Report) -> String {
    let count = |wanted: fn(&Outcome) -> bool| {
        let ended = report.checks.iter().filter(|check| wanted(&check.outcome));
        ended.count()
    };
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let passed = report.checks.len() - failed - skipped;
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

fn as_json(report: &Report) -> Json {
    let checks = report.checks.iter().map(|check| {
        let (outcome, reason) = match &check.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Failed(reason) => ("failed", Some(reason)),
            Outcome::Skipped(reason) => ("skipped", Some(reason)),
        };
        let (name, asserts) = (check.name, check.asserts);
        json!({"name": name, "asserts": asserts, "outcome": outcome, "reason": reason})
    });
    json!({
        "component": report.component,
        "passed": report.passed(),
        "checks": checks.collect::<Vec<_>>(),
    })
}
