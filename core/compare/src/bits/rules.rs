//! The option of each site -> few `[[sites]]` rules that give exactly these.

use std::collections::BTreeMap;

use espalier_config::SiteRule;

use super::options::OptionRecord;

/// Rules that give each of `sites` its option, by number, and leave the `others` dense. The last
/// rule that matches a site holds.
///
/// A rule for all sites of a kind (`*.q_proj`) gives their most frequent option; rules with full
/// names follow for the exceptions. Where the kinds do not separate the sites, each has a rule.
pub(super) fn rules(
    sites: &[(&str, usize)],
    others: &[String],
    options: &[OptionRecord],
) -> Vec<SiteRule> {
    let by_kind = by_kind(sites, options);
    if gives(&by_kind, sites, others, options) {
        return by_kind;
    }
    let each = sites.iter();
    each.map(|(site, option)| options[*option].rule((*site).to_owned()))
        .collect()
}

fn by_kind(sites: &[(&str, usize)], options: &[OptionRecord]) -> Vec<SiteRule> {
    let mut kinds: Vec<String> = Vec::new();
    let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (site, option) in sites {
        let kind = pattern(site);
        let count = counts.entry(kind.clone()).or_insert_with(|| {
            kinds.push(kind);
            vec![0; options.len()]
        });
        count[*option] += 1;
    }
    // The first of the most frequent.
    let frequent = |kind: &String| {
        let count = &counts[kind];
        let most = count.iter().max().copied().unwrap_or(0);
        count.iter().position(|&one| one == most).unwrap_or(0)
    };
    let of_kind = kinds
        .iter()
        .map(|kind| options[frequent(kind)].rule(kind.clone()));
    let exceptions = sites
        .iter()
        .filter(|(site, option)| frequent(&pattern(site)) != *option);
    let exceptions = exceptions.map(|(site, option)| options[*option].rule((*site).to_owned()));
    of_kind.chain(exceptions).collect()
}

/// The pattern of all sites of this one's kind.
fn pattern(site: &str) -> String {
    match site.rsplit_once('.') {
        Some((_, kind)) => format!("*.{kind}"),
        None => site.to_owned(),
    }
}

/// Whether `rules` give every site its option, and no quantizer to the others.
fn gives(
    rules: &[SiteRule],
    sites: &[(&str, usize)],
    others: &[String],
    options: &[OptionRecord],
) -> bool {
    let found = |site: &str| rules.iter().rev().find(|rule| rule.matches(site));
    let is_given = |(site, option): &(&str, usize)| {
        let wanted = options[*option].rule(String::new());
        found(site).is_some_and(|rule| {
            (&rule.quantizer, &rule.options) == (&wanted.quantizer, &wanted.options)
        })
    };
    sites.iter().all(is_given) && others.iter().all(|other| found(other).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Vec<OptionRecord> {
        let option = |name: &str, quantizer: Option<&str>| OptionRecord {
            name: name.to_owned(),
            quantizer: quantizer.map(str::to_owned),
            ..OptionRecord::default()
        };
        vec![
            option("nf4", Some("nf4")),
            option("hqq", Some("hqq")),
            option("none", None),
        ]
    }

    #[test]
    fn kinds_share_a_rule_and_exceptions_follow() {
        let names: Vec<String> = (0..12)
            .flat_map(|layer| ["q_proj", "down_proj"].map(|kind| format!("layers.{layer}.{kind}")))
            .chain(["lm_head".to_owned()])
            .collect();
        let option = |name: &str| match name {
            "layers.1.q_proj" => 1,
            "lm_head" => 2,
            name if name.ends_with("down_proj") => 1,
            _ => 0,
        };
        let sites: Vec<(&str, usize)> = names.iter().map(|name| (&**name, option(name))).collect();
        let others = ["embed_tokens".to_owned()];
        let found = rules(&sites, &others, &options());
        let shown: Vec<(&str, Option<&str>)> = found
            .iter()
            .map(|rule| (rule.pattern.as_str(), rule.quantizer.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("*.q_proj", Some("nf4")),
                ("*.down_proj", Some("hqq")),
                ("lm_head", Some("none")),
                ("layers.1.q_proj", Some("hqq")),
            ]
        );
        assert!(gives(&found, &sites, &others, &options()));
    }

    #[test]
    fn a_kind_that_also_names_a_token_table_is_not_matched_as_a_whole() {
        let sites = [("a.proj", 0), ("b.proj", 0)];
        let found = rules(&sites, &["table.proj".to_owned()], &options());
        let patterns: Vec<&str> = found.iter().map(|rule| rule.pattern.as_str()).collect();
        assert_eq!(patterns, ["a.proj", "b.proj"]);
    }
}
