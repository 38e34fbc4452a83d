//! `[[sites]]`: exceptions for the sites whose names match a pattern.

use serde::{Deserialize, Serialize};

use super::Section;

/// One `[[sites]]` entry; of several that match a site, the last one holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRule {
    /// Pattern of site names; `*` stands for any characters (`*.down_proj`).
    #[serde(rename = "match")]
    pub pattern: String,
    /// The quantizer used there; `none` keeps the weight dense; unset: the run's own.
    #[serde(default)]
    pub quantizer: Option<String>,
    /// Options of that quantizer which differ there.
    #[serde(default)]
    pub options: Section,
}

impl SiteRule {
    /// Whether the whole of `site` matches the pattern.
    pub fn matches(&self, site: &str) -> bool {
        pattern_matches(&self.pattern, site)
    }
}

/// Whether the whole of `name` matches `pattern`, in which `*` stands for any characters.
pub fn pattern_matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let matches = |pattern: &str, site: &str| {
            let rule = SiteRule {
                pattern: pattern.into(),
                ..SiteRule::default()
            };
            rule.matches(site)
        };
        assert!(matches("*.down_proj", "model.layers.0.mlp.down_proj"));
        assert!(!matches("*.down_proj", "model.layers.0.mlp.down_proj.x"));
        assert!(matches("model.layers.1.*", "model.layers.1.mlp.up_proj"));
        assert!(!matches("model.layers.1.*", "model.layers.10.mlp.up_proj"));
        assert!(matches("*.0.*.q_proj", "model.layers.0.self_attn.q_proj"));
        assert!(matches("lm_head", "lm_head"));
        assert!(!matches("lm_head", "lm_head2"));
        assert!(!matches("ab*ba", "aba"));
        assert!(matches("*", ""));
    }
}
