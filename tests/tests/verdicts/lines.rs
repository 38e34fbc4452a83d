//! A summary -> the lines of its table as printed.

use std::collections::BTreeMap;

use espalier_compare::report::{Summary, Table};

/// The table as printed: each arm's verdict, and its distance above the lowest.
pub struct Lines(pub BTreeMap<String, (String, Option<[f64; 3]>)>);

impl Lines {
    pub fn of(summary: &Summary) -> Self {
        let table = Table::new(&summary.arms);
        let column = |name: &str| table.heads.iter().position(|head| *head == name);
        let (verdict, above) = (column("verdict"), column("above the lowest"));
        let lines = table.lines.iter().map(|line| {
            let above = above
                .map(|at| line[at].as_str())
                .filter(|cell| !cell.is_empty());
            let verdict = line[verdict.expect("a verdict")].clone();
            (line[0].clone(), (verdict, above.map(numbers)))
        });
        Lines(lines.collect())
    }

    pub fn verdict(&self, arm: &str) -> &str {
        let line = self.0.get(arm);
        &line.unwrap_or_else(|| panic!("there is no arm {arm:?}")).0
    }

    pub fn all(&self, verdict: &str) -> Vec<&str> {
        let those = self.0.iter().filter(|(_, line)| line.0 == verdict);
        those.map(|(name, _)| name.as_str()).collect()
    }
}

/// `+0.030 (+0.008 to +0.051)`.
fn numbers(text: &str) -> [f64; 3] {
    let text = text.replace('\u{2212}', "-");
    let each = text
        .split([' ', '(', ')'])
        .filter_map(|word| word.parse().ok());
    let each: Vec<f64> = each.collect();
    each.try_into()
        .unwrap_or_else(|_| panic!("not three numbers: {text}"))
}
