//! A comparison's report -> one HTML page that needs nothing beside it.

use minijinja::context;

use super::cost::{judgement, shown};
use super::{Pair, Report, Table, reading};
use crate::report::number::signed;
use crate::report::page::{Row, templates};

/// The page's own parts.
const TEMPLATES: [(&str, &str); 1] = [("compare.html", include_str!("compare.html"))];

/// The page.
pub fn render(report: &Report) -> String {
    let environment = templates(&TEMPLATES);
    let page = environment
        .get_template("compare.html")
        .expect("just added");
    let rendered = page.render(context! {
        title => report.title,
        version => report.version,
        reading => report.reading,
        rules => reading::RULES,
        table => Table::new(&report.arms),
        pairs => report.pairs.iter().map(pair).collect::<Vec<_>>(),
    });
    rendered.expect("the page's templates use what they are given")
}

fn pair(pair: &Pair) -> Row {
    let [first, second] = &pair.arms;
    let mut cells = vec![format!("{first} \u{2212} {second}")];
    cells.extend(match &pair.difference {
        Some(difference) => [
            signed(difference.estimate, difference.interval.width()),
            shown(difference.interval),
            judgement(pair, difference).to_owned(),
        ],
        None => {
            let missing = pair.missing.clone().unwrap_or_default();
            [String::new(), String::new(), missing]
        }
    });
    Row(cells)
}
