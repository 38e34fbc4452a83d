//! The check of a graph: indices in range, single assignment, and the operands of known ops.

use super::Graph;
use crate::operands::operands;
use crate::{PluginError, Result};

impl Graph {
    /// Checks that every index is in range, every value is made once and before it is read, and
    /// that known ops have their operands.
    ///
    /// # Errors
    /// `INVALID`, naming the graph, the node and what is wrong with it.
    pub fn validate(&self) -> Result<()> {
        let fail = |what: String| {
            Err(PluginError::invalid(format!(
                "graph `{}`: {what}",
                self.name
            )))
        };
        let mut made = vec![false; self.values.len()];
        for input in &self.inputs {
            match made.get_mut(input.value) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return fail(format!("value {} is two inputs", input.value)),
                None => return fail(format!("input value {} does not exist", input.value)),
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let at = format!("node {index} ({})", node.op);
            let found = [node.inputs.len(), node.params.len(), node.outputs.len()];
            // An op that is not known here may be a backend's own. It has at least one output.
            let expected =
                operands(&node.op).unwrap_or([0..=usize::MAX, 0..=usize::MAX, 1..=usize::MAX]);
            if !expected
                .iter()
                .zip(&found)
                .all(|(range, count)| range.contains(count))
            {
                let [inputs, params, outputs] = found;
                return fail(format!(
                    "{at} has {inputs} inputs, {params} params and {outputs} outputs"
                ));
            }
            for &value in &node.inputs {
                if !made.get(value).copied().unwrap_or(false) {
                    return fail(format!("{at} reads value {value} before it is made"));
                }
            }
            for &param in &node.params {
                if param >= self.params.len() {
                    return fail(format!("{at} reads param {param}, which does not exist"));
                }
            }
            for &value in &node.outputs {
                match made.get_mut(value) {
                    Some(seen) if !*seen => *seen = true,
                    Some(_) => return fail(format!("{at} makes value {value} a second time")),
                    None => return fail(format!("{at} makes value {value}, which has no type")),
                }
            }
        }
        for output in &self.outputs {
            if !made.get(output.value).copied().unwrap_or(false) {
                return fail(format!("output `{}` is never made", output.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::graph::{Attributes, Dim, Source};

    #[test]
    fn a_value_read_before_it_is_made_is_refused() {
        let mut graph = Graph::new("g");
        let x = graph.input(
            Source::Previous("hidden".into()),
            [Dim::Tokens],
            DType::COMPUTE,
        );
        let late = graph.value([Dim::Tokens], DType::COMPUTE);
        let ty = graph.type_of(x).clone();
        let y = graph.node("add", &[x, late], &[], vec![ty], Attributes::new());
        graph.output("hidden", y);
        let message = graph.validate().expect_err("value 1 is never made").message;
        assert!(
            message.contains("reads value 1 before it is made"),
            "{message}"
        );
    }
}
