//! Stored tensors -> groups that go to one file: the tensors of a packed module are together.

use std::collections::{HashMap, HashSet};

/// The indices of tensors called `names`, in their order; those of one of the packed `modules` are
/// one group, at the place of the first. Loaders of packed weights expect all tensors of a weight
/// in one file.
pub fn module_groups<'a>(
    names: impl Iterator<Item = &'a str>,
    modules: &HashSet<&str>,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of: HashMap<&str, usize> = HashMap::new();
    for (index, name) in names.enumerate() {
        let Some(module) = module_of(name, modules) else {
            groups.push(vec![index]);
            continue;
        };
        let group = *group_of.entry(module).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(index);
    }
    groups
}

/// The module among `modules` that tensor `name` belongs to.
fn module_of<'n>(name: &'n str, modules: &HashSet<&str>) -> Option<&'n str> {
    let dots = name.match_indices('.');
    let mut prefixes = dots.map(|(dot, _)| &name[..dot]);
    prefixes.find(|prefix| modules.contains(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_of_a_packed_module_are_together() {
        let names = [
            "a.weight",
            "b.up.absmax",
            "c.weight",
            "b.up.weight",
            "b.up2.weight",
        ];
        let groups = module_groups(names.into_iter(), &HashSet::from(["b.up"]));
        assert_eq!(groups, [vec![0], vec![1, 3], vec![2], vec![4]]);
    }
}
