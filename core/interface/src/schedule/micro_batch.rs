//! Builds a micro-batch's list of actions: its passes, and the actions that a strategy adds around
//! them.

use super::{Act, Action, Part, Pass, ShardingRequest, When};

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
    /// need not wait for the reduction. Where the run updates in the backward pass, the unit is
    /// then updated and its gradients are released.
    pub fn reduce(&mut self, stream: u32) {
        let whole = self.units_whole_after();
        let reduce = |&unit: &usize| Action::new(Act::Reduce, unit).when(When::Last).on(stream);
        for (pass, units) in whole.iter().enumerate() {
            if pass > 0 {
                self.count(pass, &whole[pass - 1]);
            }
            self.after[pass].extend(units.iter().map(reduce));
        }
        if let Some(units) = whole.last() {
            self.count(whole.len() - 1, units);
        }
    }

    /// For one rank that reduces nothing, where the run updates in the backward pass: adds the
    /// squares of every trained unit's gradients to the norm as soon as they are complete, updates
    /// the unit and releases them.
    pub fn update_in_backward(&mut self) {
        for (pass, units) in self.units_whole_after().iter().enumerate() {
            self.count(pass, units);
        }
    }

    /// For each pass the trained units whose gradients are complete after it.
    fn units_whole_after(&self) -> Vec<Vec<usize>> {
        let mut whole = vec![Vec::new(); self.passes.len()];
        for unit in self.request.trained() {
            whole[self.request.gradients_whole_after(unit)].push(unit);
        }
        whole
    }

    /// Counts complete gradients in the norm after a pass, and lets the update follow where it
    /// takes place in the backward pass.
    fn count(&mut self, pass: usize, units: &[usize]) {
        for &unit in units {
            let last = |action: Action| action.when(When::Last);
            self.after[pass].push(last(Action::new(Act::Norm, unit)));
            if self.request.update_in_backward {
                self.after[pass].push(last(Action::new(Act::Optimize, unit)));
                let release = Action::moving(Act::Release, unit, &[Part::Gradients]);
                self.after[pass].push(last(release));
            }
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
