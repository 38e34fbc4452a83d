//! Changes of files -> files and names on a disk, and which of them a power cut can lose.
//!
//! Data written to a file since its last sync may be kept, missing, zero or cut. Each name that a
//! directory gained or lost since its own last sync may be kept or lost. A rename within a
//! directory is one step.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::data::{DataStep, Loss, content};
use super::record::{Change, Kind};
use super::state::{State, digest};

/// `RENAME_EXCHANGE` of `renameat2`.
const EXCHANGE: i64 = 2;

/// Names in a directory, with the numbers of their nodes.
type Names = BTreeMap<String, usize>;

/// One unsynced step of a directory: names set and removed.
#[derive(Clone, Debug)]
struct Step {
    set: Vec<(String, usize)>,
    removed: Vec<String>,
}

#[derive(Clone, Debug)]
enum Node {
    File {
        data: Vec<DataStep>,
        synced: usize,
    },
    Directory {
        now: Names,
        synced: Names,
        steps: Vec<Step>,
    },
}

/// A disk, and which parts of it are durable.
#[derive(Clone, Debug)]
pub struct Disk {
    nodes: Vec<Node>,
}

impl Default for Disk {
    /// An empty folder.
    fn default() -> Self {
        Disk {
            nodes: vec![Node::directory()],
        }
    }
}

impl Node {
    fn directory() -> Self {
        Node::Directory {
            now: Names::new(),
            synced: Names::new(),
            steps: Vec::new(),
        }
    }
}

impl Disk {
    /// Makes a change.
    ///
    /// # Panics
    /// If it cannot have been made on this disk: the record lacks something.
    pub fn make(&mut self, change: &Change) {
        let Change {
            kind,
            path,
            to,
            bytes,
            at,
        } = change;
        let length = usize::try_from(*at).unwrap_or(0);
        match kind {
            Kind::Open => self.open(path, *at),
            Kind::Write => self.data(path, DataStep::Write(length, bytes.clone())),
            Kind::Truncate => self.data(path, DataStep::Length(length)),
            Kind::Extend => self.data(path, DataStep::Extend(length)),
            Kind::Sync => self.sync(path),
            Kind::MakeDirectory => {
                let node = self.add(Node::directory());
                self.step(path, vec![node], &[]);
            }
            Kind::Remove => self.step(path, Vec::new(), &[path]),
            Kind::Link => {
                let node = self.find(path).expect("what is linked is there");
                self.step(to, vec![node], &[]);
            }
            Kind::Rename if at & EXCHANGE != 0 => {
                let [from, onto] = [path, to].map(|path| self.find(path).expect("both are there"));
                self.step(path, vec![onto], &[]);
                self.step(to, vec![from], &[]);
            }
            Kind::Rename => {
                let node = self.find(path).expect("what is renamed is there");
                if path.parent() == to.parent() {
                    self.step(to, vec![node], &[path])
                } else {
                    self.step(to, vec![node], &[]);
                    self.step(path, Vec::new(), &[path]);
                }
            }
        }
    }

    fn open(&mut self, path: &Path, flags: i64) {
        let truncates = flags & i64::from(libc::O_TRUNC) != 0;
        match self.find(path) {
            Some(_) if truncates => self.data(path, DataStep::Length(0)),
            Some(_) => {}
            None => {
                let node = self.add(Node::File {
                    data: Vec::new(),
                    synced: 0,
                });
                self.step(path, vec![node], &[]);
            }
        }
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for part in path.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            let Node::Directory { now, .. } = &self.nodes[at] else {
                return None;
            };
            at = *now.get(&*name.to_string_lossy())?;
        }
        Some(at)
    }

    fn data(&mut self, path: &Path, step: DataStep) {
        let node = self
            .find(path)
            .unwrap_or_else(|| panic!("{} was not opened", path.display()));
        let Node::File { data, .. } = &mut self.nodes[node] else {
            panic!("{} is no file", path.display())
        };
        data.push(step);
    }

    /// Sets the name of `path` to `node`, if any, and removes the names of `gone`, in one step.
    fn step(&mut self, path: &Path, node: Vec<usize>, gone: &[&Path]) {
        let folder = path
            .parent()
            .and_then(|above| self.find(above))
            .expect("its folder is there");
        let name = |path: &Path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        };
        let set: Vec<(String, usize)> = node.into_iter().map(|node| (name(path), node)).collect();
        let step = Step {
            set,
            removed: gone.iter().map(|path| name(path)).collect(),
        };
        let Node::Directory { now, steps, .. } = &mut self.nodes[folder] else {
            panic!("no folder")
        };
        step.apply(now);
        steps.push(step);
    }

    fn sync(&mut self, path: &Path) {
        let node = self
            .find(path)
            .unwrap_or_else(|| panic!("{} is synced and not there", path.display()));
        match &mut self.nodes[node] {
            Node::File { data, synced } => *synced = data.len(),
            Node::Directory { now, synced, steps } => {
                synced.clone_from(now);
                steps.clear();
            }
        }
    }

    /// The directories and their steps that can be lost, in order.
    fn open_steps(&self) -> Vec<(usize, usize)> {
        let steps = |(node, of): (usize, &Node)| match of {
            Node::Directory { steps, .. } => (0..steps.len()).map(|step| (node, step)).collect(),
            Node::File { .. } => Vec::new(),
        };
        self.nodes.iter().enumerate().flat_map(steps).collect()
    }

    /// The files whose data can be lost.
    fn open_files(&self) -> Vec<usize> {
        let is_open = |node: &usize| matches!(&self.nodes[*node], Node::File { data, synced } if *synced < data.len());
        (0..self.nodes.len()).filter(is_open).collect()
    }

    /// Possible contents of the disk after a power cut: nothing lost, all lost, each item alone
    /// lost, and the choices of `draw`.
    pub fn after_a_cut(&self, mut draw: impl FnMut(usize) -> usize) -> Vec<State> {
        const LOSSES: [Loss; 4] = [Loss::Kept, Loss::Missing, Loss::Zero, Loss::Cut];
        let (steps, files) = (self.open_steps(), self.open_files());
        let mut states = Vec::new();
        for all in [Loss::Kept, Loss::Missing, Loss::Zero, Loss::Cut] {
            states.push(self.state(|_| false, |_| all));
            states.push(self.state(|_| true, |_| all));
        }
        for lost in &steps {
            states.push(self.state(|step| step == *lost, |_| Loss::Kept));
        }
        for lost in &files {
            for loss in [Loss::Missing, Loss::Cut] {
                let of = |file| if file == *lost { loss } else { Loss::Kept };
                states.push(self.state(|_| false, of));
            }
        }
        for _ in 0..3 {
            let lost: Vec<_> = steps.iter().filter(|_| draw(2) == 0).copied().collect();
            let losses: BTreeMap<usize, Loss> =
                files.iter().map(|&file| (file, LOSSES[draw(4)])).collect();
            let of = |file| losses.get(&file).copied().unwrap_or(Loss::Kept);
            states.push(self.state(|step| lost.contains(&step), of));
        }
        let mut seen = std::collections::BTreeSet::new();
        states.retain(|state| seen.insert(digest(state)));
        states
    }

    /// The contents if these steps of directories are lost and data has this loss.
    fn state(&self, lost: impl Fn((usize, usize)) -> bool, loss: impl Fn(usize) -> Loss) -> State {
        let mut state = State::new();
        self.gather(0, "", &lost, &loss, &mut state);
        state
    }

    fn gather(
        &self,
        node: usize,
        path: &str,
        lost: &impl Fn((usize, usize)) -> bool,
        loss: &impl Fn(usize) -> Loss,
        state: &mut State,
    ) {
        match &self.nodes[node] {
            Node::File { data, synced } => {
                state.insert(path.to_owned(), Some(content(data, *synced, loss(node))));
            }
            Node::Directory { synced, steps, .. } => {
                let mut names = synced.clone();
                for (number, step) in steps.iter().enumerate() {
                    if !lost((node, number)) {
                        step.apply(&mut names);
                    }
                }
                if !path.is_empty() {
                    state.insert(path.to_owned(), None);
                }
                for (name, node) in names {
                    let below = if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    };
                    self.gather(node, &below, lost, loss, state);
                }
            }
        }
    }
}

impl Step {
    fn apply(&self, names: &mut Names) {
        for name in &self.removed {
            names.remove(name);
        }
        names.extend(self.set.iter().cloned());
    }
}

#[cfg(test)]
mod tests;
