//! A comparison's report -> one self-contained HTML page.

use std::collections::BTreeSet;

use espalier_report::memory::Bar;
use espalier_report::page::{Row, data, machine, plugin_row, templates, toml};
use espalier_report::record::Record;
use minijinja::context;
use serde::Serialize;
use serde_json::Value as Json;

use super::findings::Findings;
use super::row::ArmRow;
use super::table::Table;
use super::{Report, errors, measures, reading, scatter, strips};

/// Number of arm colours; further arms reuse them.
const COLOURS: usize = 8;

/// The page's own templates.
const TEMPLATES: [(&str, &str); 5] = [
    ("compare.html", include_str!("compare.html")),
    ("measures.html", include_str!("measures.html")),
    ("strips.html", include_str!("strips.html")),
    ("scatter.html", include_str!("scatter.html")),
    ("compare.css", include_str!("compare.css")),
];

/// An arm in the page's lists.
#[derive(Serialize)]
struct ArmEntry {
    name: String,
    colour: usize,
    is_dense_baseline: bool,
    bar: Option<Bar>,
    changes: String,
    command: String,
}

/// The page.
pub fn render(report: &Report, findings: &Findings) -> String {
    let environment = templates(&TEMPLATES);
    let page = environment
        .get_template("compare.html")
        .expect("just added");
    let colour = colours(findings);
    let first = findings.arms.iter().flat_map(|arm| &arm.runs).next();
    let nothing = Record::default();
    let record = first.map_or(&nothing, |run| &run.record);
    let drawings: Vec<_> = report
        .charts
        .iter()
        .map(|chart| chart.drawing(report.span))
        .collect();
    let layers = errors::by_layer(findings, &colour);
    let last_layer = layers
        .curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(layer, _)| *layer as u64)
        .max();
    let rendered = page.render(context! {
        title => report.title,
        version => report.version,
        schedule => report.schedule,
        eval_only => report.eval_only,
        seeds_shown => reading::seeds(&report.seeds),
        first_seed => report.seeds.first().copied().unwrap_or(42),
        model => record.model.path,
        reading => report.reading,
        rules => reading::RULES,
        arms => entries(findings, &report.arms, &colour),
        table => Table::new(&report.arms),
        measures => measures::measures(&report.arms, &colour),
        forest => strips::forest(&report.pairs, report.noise.as_ref(), &colour),
        charts => drawings,
        layers => last_layer.map(|last| layers.drawing([0, last])),
        kinds => strips::kinds(findings, &colour),
        scatter => scatter::scatter(findings, &report.arms, &colour),
        plugins => plugins(findings),
        data => data(record),
        machine => if first.is_some() { machine(record) } else { Vec::new() },
        config => if first.is_some() { toml(&shared(&record.config)) } else { String::new() },
    });
    rendered.expect("the page's templates use what they are given")
}

/// An arm's colour by its place: the first one is the dense baseline's.
pub fn colours(findings: &Findings) -> impl Fn(usize) -> usize {
    let dense_baseline = findings.dense_baseline();
    move |place| match dense_baseline {
        Some(dense_baseline) if place == dense_baseline => 0,
        Some(dense_baseline) if place < dense_baseline => 1 + place % (COLOURS - 1),
        Some(_) => 1 + (place - 1) % (COLOURS - 1),
        None => 1 + place % (COLOURS - 1),
    }
}

fn entries(findings: &Findings, rows: &[ArmRow], colour: impl Fn(usize) -> usize) -> Vec<ArmEntry> {
    let extents = rows
        .iter()
        .filter_map(|row| Some(row.memory.as_ref()?.extent()));
    let longest = extents.max().unwrap_or_default();
    let arms = findings.arms.iter().zip(rows).enumerate();
    let entry =
        |(place, (found, row)): (usize, (&super::findings::ArmFindings, &ArmRow))| ArmEntry {
            name: row.name.clone(),
            colour: colour(place),
            is_dense_baseline: row.is_dense_baseline,
            bar: row
                .memory
                .as_ref()
                .and_then(|memory| memory.bar_of(longest)),
            changes: toml(&Json::Object(found.arm.changes.clone())),
            command: found.arm.command.clone(),
        };
    arms.map(entry).collect()
}

/// The components of all arms, without duplicates.
fn plugins(findings: &Findings) -> Vec<Row> {
    let mut seen = BTreeSet::new();
    let all = findings.arms.iter().flat_map(|arm| &arm.arm.plugins);
    let rows = all.map(plugin_row);
    rows.filter(|row| seen.insert(row.0.clone())).collect()
}

/// A run's config without the keys of the single run.
fn shared(config: &Json) -> Json {
    let mut config = config.clone();
    if let Some(run) = config.get_mut("run").and_then(Json::as_object_mut) {
        run.shift_remove("seed");
        run.shift_remove("out");
    }
    config
}
