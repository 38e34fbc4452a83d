//! Finds the known name that a mistyped one most likely meant.

/// The candidate nearest to `name`, if one is near enough. At most a third of its letters differ
/// (swapped neighbours count once), or one is the beginning of the other.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let known = candidate.to_lowercase();
            let distance = strsim::damerau_levenshtein(&wanted, &known);
            let longest = wanted.chars().count().max(known.chars().count());
            let begins = wanted.chars().count() >= 3
                && (known.starts_with(&wanted) || wanted.starts_with(&known));
            (distance <= (longest / 3).max(1) || begins).then_some((distance, candidate))
        })
        .min_by_key(|(distance, candidate)| (*distance, *candidate))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_slips_of_the_keyboard_and_beginnings() {
        let known = ["learning_rate", "betas", "eps", "weight_decay"];
        assert_eq!(nearest("learning_rte", known), Some("learning_rate"));
        assert_eq!(nearest("leraning_rate", known), Some("learning_rate"));
        assert_eq!(nearest("Beta", known), Some("betas"));
        assert_eq!(nearest("weight", known), Some("weight_decay"));
        assert_eq!(nearest("momentum", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
