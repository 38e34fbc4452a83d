//! A report -> one self-contained HTML page.

use espalier_engine::load::DecodeCheck;
use espalier_interface::bytes::Bytes;
use espalier_plan::param_groups::ParamGroup;
use espalier_registry::PluginIdentity;
use espalier_system::number::{count, percent, significant};
use espalier_trainer::swap::SwapRecord;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;
use serde_json::Value as Json;

use super::chart::ChartEvent;
use super::record::{DataFile, Record, shown_hash};
use super::run_metrics::EvalPoint;
use super::{Report, reading};

/// The templates that all pages share.
const TEMPLATES: [(&str, &str); 7] = [
    ("page.html", include_str!("page.html")),
    ("head.html", include_str!("head.html")),
    ("chart.html", include_str!("chart.html")),
    ("bar.html", include_str!("bar.html")),
    ("circumstances.html", include_str!("circumstances.html")),
    ("style.css", include_str!("style.css")),
    ("hover.js", include_str!("hover.js")),
];

/// A line of a table: its name and its cells.
#[derive(Serialize)]
pub struct Row(pub Vec<String>);

/// The templates and `more`; all inserted values are escaped.
pub fn templates(more: &[(&'static str, &'static str)]) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, source) in TEMPLATES.iter().chain(more) {
        let added = environment.add_template(name, source);
        added.expect("the page's templates are well formed");
    }
    environment
}

/// The page.
pub fn render(report: &Report) -> String {
    let environment = templates(&[]);
    let record = &report.record;
    let taken = report.swaps.iter().filter(|swap| swap.is_taken());
    let event = |swap: &SwapRecord| ChartEvent {
        step: swap.step,
        label: swap.label(),
        text: swap.shown(),
    };
    let events: Vec<ChartEvent> = taken.map(event).collect();
    let drawings: Vec<_> = report
        .charts
        .iter()
        .map(|chart| chart.drawing(report.span).marked(&events, report.span))
        .collect();
    let page = environment.get_template("page.html").expect("just added");
    let rendered = page.render(context! {
        title => report.title,
        model => record.model.path,
        roles => roles(record),
        identity => report.identity,
        version => record.espalier,
        seed => record.seed,
        verdict => report.reading.verdict,
        verdict_name => report.reading.verdict.name(),
        sentences => report.reading.sentences,
        rules => reading::RULES,
        rows_trained => report.rows.trained,
        row_notes => report.rows.sentences(),
        rows_lost => report.rows.table(),
        tiles => report.headline.tiles(&report.facts, [
            report.memory.observed_peak_bytes,
            report.memory.planned_peak_bytes,
        ]),
        charts => drawings,
        memory => report.memory.bar(),
        usages => report.usages,
        samples => report.samples,
        evals => evals(&report.evals),
        swaps => swaps(&report.swaps),
        packing => packing(record),
        packing_is_wrong => record.decode_checks.iter().any(DecodeCheck::is_wrong),
        groups => groups(record),
        plugins => plugins(record),
        data => data(record),
        peak => report.peak.how,
        machine => machine(record),
        config => toml(&record.config),
    });
    rendered.expect("the page's templates use what they are given")
}

/// The components by role, the most characteristic ones first.
fn roles(record: &Record) -> Vec<Row> {
    let order = ["quantizer", "adapter", "family", "sharding", "backend"];
    let known = order.iter().filter_map(|role| record.plugin(role));
    let row = |plugin: &PluginIdentity| Row(vec![plugin.role.clone(), plugin.component.clone()]);
    known.map(row).collect()
}

fn evals(evals: &[EvalPoint]) -> Vec<Row> {
    let number = |value: Option<f64>| value.map(|v| significant(v, 5)).unwrap_or_default();
    let share = |value: Option<f64>| value.map(percent).unwrap_or_default();
    let row = |eval: &EvalPoint| {
        Row(vec![
            eval.step.to_string(),
            number(eval.loss),
            number(eval.perplexity),
            share(eval.token_accuracy),
            share(eval.exact_match),
        ])
    };
    evals.iter().map(row).collect()
}

fn swaps(swaps: &[SwapRecord]) -> Vec<Row> {
    let name = |identity: &Option<PluginIdentity>| match identity {
        Some(PluginIdentity {
            component,
            version,
            sha256,
            ..
        }) => {
            let library = sha256.as_deref().map_or("", shown_hash);
            format!("{component} {version} {library}")
        }
        None => "none".to_owned(),
    };
    let row = |swap: &SwapRecord| {
        let losses = match (swap.loss_before, swap.loss_after) {
            (Some(before), Some(after)) => {
                format!("{} -> {}", significant(before, 4), significant(after, 4))
            }
            _ => String::new(),
        };
        let asked = [std::slice::from_ref(&swap.asked), &swap.changed[..]].concat();
        Row(vec![
            (swap.step + 1).to_string(),
            if swap.is_taken() { "taken" } else { "refused" }.to_owned(),
            asked.join(" "),
            name(&swap.from),
            name(&swap.to),
            losses,
            swap.reason.clone().unwrap_or_default(),
        ])
    };
    swaps.iter().map(row).collect()
}

/// The groups of trained params, where there are several.
fn groups(record: &Record) -> Vec<Row> {
    let groups = record.param_groups.iter();
    let row = |group: &ParamGroup| {
        Row(vec![
            group.name(),
            count(group.params),
            count(group.elements),
            significant(group.learning_rate, 4),
            significant(group.weight_decay, 4),
        ])
    };
    match groups.len() {
        0 | 1 => Vec::new(),
        _ => groups.map(row).collect(),
    }
}

fn plugins(record: &Record) -> Vec<Row> {
    record.plugins.iter().map(plugin_row).collect()
}

/// The plugin of a component.
pub fn plugin_row(plugin: &PluginIdentity) -> Row {
    let library = match (&plugin.file, &plugin.sha256) {
        (Some(file), Some(sha256)) => format!("{} {}", shown_hash(sha256), file.display()),
        _ => "linked into the program".to_owned(),
    };
    Row(vec![
        plugin.role.clone(),
        plugin.component.clone(),
        format!("{} {}", plugin.plugin, plugin.version),
        format!("{}.{}", plugin.abi[0], plugin.abi[1]),
        library,
    ])
}

/// Whether a weight of each format decodes to its original values.
fn packing(record: &Record) -> Vec<Row> {
    let row = |check: &DecodeCheck| {
        let error = check.error.map(|error| significant(error, 3));
        let told = if check.is_wrong() {
            check.to_string()
        } else {
            check.not_checkable.clone().unwrap_or_default()
        };
        Row(vec![
            check.quantizer.clone(),
            check.weight.clone(),
            error.unwrap_or_default(),
            told,
        ])
    };
    record.decode_checks.iter().map(row).collect()
}

/// The files of rows.
pub fn data(record: &Record) -> Vec<Row> {
    let rows = |which: &'static str, files: &Option<Vec<DataFile>>| -> Vec<Row> {
        let row = |file: &DataFile| {
            Row(vec![
                which.to_owned(),
                file.path.display().to_string(),
                file.format.clone(),
                count(file.rows),
                Bytes(file.bytes).to_string(),
                shown_hash(&file.sha256).to_owned(),
            ])
        };
        files.iter().flatten().map(row).collect()
    };
    let held_out = rows("held out", &record.data.eval_files);
    let trained = rows("trained on", &record.data.files);
    trained.into_iter().chain(held_out).collect()
}

/// The machine of the run.
pub fn machine(record: &Record) -> Vec<Row> {
    let machine = &record.machine;
    let rate = significant(machine.gemm_flops_per_sec / 1e9, 3);
    [
        ("device", machine.device.clone()),
        ("description", machine.description.clone()),
        ("memory", Bytes(machine.memory_bytes).to_string()),
        ("threads", machine.threads.to_string()),
        ("instruction set", record.instruction_set.clone()),
        ("measured matrix product", format!("{rate} GFLOP/s")),
        ("ranks", record.world.to_string()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| Row(vec![name.to_owned(), value]))
    .collect()
}

/// The config as TOML; unset keys are left out.
pub fn toml(config: &Json) -> String {
    fn set(value: &Json) -> Json {
        match value {
            Json::Object(table) => {
                let entries = table.iter().filter(|(_, value)| !value.is_null());
                Json::Object(
                    entries
                        .map(|(key, value)| (key.clone(), set(value)))
                        .collect(),
                )
            }
            other => other.clone(),
        }
    }
    ::toml::to_string(&set(config)).unwrap_or_else(|_| format!("{config:#}"))
}
