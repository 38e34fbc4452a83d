//! Builds a micro-batch's list of actions: its passes, and the actions that a strategy adds around
//! them.

use super::{Act, Action, Pass, ShardingRequest, When};

/// A micro-batch under construction.
pub struct MicroBatch<'a> {
    request: &'a ShardingRequest,
    passes: Vec<Pass<'a>>,
    before: Vec<Vec<Action>>,
    after: Vec<Vec<Action>>,
}

impl<'a> MicroBatch<'a> {
    /// The passes without other actions.
    pub fn new(request: &'a ShardingRequest) -> Self {
        let passes = request.passes();
        MicroBatch {
            request,
            before: vec![Vec::new(); passes.len()],
            after: vec![Vec::new(); passes.len()],
            passes,
        }
    }

    /// The passes, in order.
    pub fn passes(&self) -> &[Pass<'a>] {
        &self.passes
    }

    /// Adds an action right before a pass, after those already there.
    pub fn before(&mut self, pass: usize, action: Action) {
        self.before[pass].push(action);
    }

    /// Adds an action right after a pass, after those already there.
    pub fn after(&mut self, pass: usize, action: Action) {
        self.after[pass].push(action);
    }

    /// Reduces every trained unit in the last micro-batch on `stream` as soon as its gradients are
    /// complete. It adds their squares to the norm one pass later, so that the passes in between
    /// need not wait for the reduction.
    pub fn reduce(&mut self, stream: u32) {
        let mut whole = vec![Vec::new(); self.passes.len()];
        for unit in self.request.trained() {
            whole[self.request.gradients_whole_after(unit)].push(unit);
        }
        let norm = |&unit: &usize| Action::new(Act::Norm, unit).when(When::Last);
        let reduce = |&unit: &usize| Action::new(Act::Reduce, unit).when(When::Last).on(stream);
        for (pass, units) in whole.iter().enumerate() {
            if pass > 0 {
                self.after[pass].extend(whole[pass - 1].iter().map(norm));
            }
            self.after[pass].extend(units.iter().map(reduce));
        }
        if let (Some(after), Some(units)) = (self.after.last_mut(), whole.last()) {
            after.extend(units.iter().map(norm));
        }
    }

    /// All actions in order.
    pub fn into_actions(self) -> Vec<Action> {
        let around = self.before.into_iter().zip(self.after);
        let mut actions = Vec::new();
        for (pass, (before, after)) in self.passes.iter().zip(around) {
            actions.extend(before);
            actions.push(Action::new(pass.act, pass.unit));
            actions.extend(after);
        }
        actions
    }
}
