//! A compiled template, a conversation and jobs -> texts, within the bounds of steps and text.

use std::collections::BTreeMap;
use std::io;

use minijinja::Environment;
use minijinja::value::Value as Jinja;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::panics::contain;
use super::bounds::{self, Bound, Met};
use super::environment::{self, MARKING, NAME};

/// The input of a template.
#[derive(Serialize)]
pub(super) struct Conversation {
    /// The turns.
    pub messages: Vec<Value>,
    /// Tools that may be called; null where there are none.
    pub tools: Value,
    /// Bytes of both.
    #[serde(skip)]
    pub bytes: usize,
}

/// The same as Jinja values.
#[derive(Deserialize)]
pub(super) struct Variables {
    messages: Vec<Jinja>,
    tools: Jinja,
}

impl Variables {
    /// Those of `conversation`.
    pub fn of(conversation: &Conversation) -> Self {
        let messages = conversation.messages.iter();
        Variables {
            messages: messages.map(Jinja::from_serialize).collect(),
            tools: Jinja::from_serialize(&conversation.tools),
        }
    }
}

/// One rendering of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Job {
    /// Messages of the conversation that are rendered, the first ones.
    turns: usize,
    add_generation_prompt: bool,
    /// Whether the text that `{% generation %}` encloses is marked.
    marked: bool,
    give: Give,
}

/// What a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Give {
    Text,
    Beginning,
}

/// The answer to a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Answer {
    /// The text.
    Text(String),
    /// The text's length in bytes, where the first job's text begins with it.
    Beginning(Option<usize>),
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Fault {
    /// The template refuses the conversation, with the line.
    Raised(String),
    /// A bound was exceeded.
    Met(Met),
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Fault::Raised(reason)
    }
}

impl Job {
    /// The text of the first `turns` messages.
    pub fn text(turns: usize) -> Self {
        Job {
            turns,
            add_generation_prompt: false,
            marked: false,
            give: Give::Text,
        }
    }

    /// The text with marks around generated text.
    pub fn marked(turns: usize) -> Self {
        Job {
            marked: true,
            ..Job::text(turns)
        }
    }

    /// Whether the first job's text begins with this one's, and its length.
    pub fn beginning(turns: usize) -> Self {
        Job {
            give: Give::Beginning,
            ..Job::text(turns)
        }
    }

    /// The same job with the generation prompt.
    pub fn with_prompt(self) -> Self {
        Job {
            add_generation_prompt: true,
            ..self
        }
    }
}

impl Answer {
    /// The text that was asked for.
    pub fn text(self) -> String {
        match self {
            Answer::Text(text) => text,
            Answer::Beginning(_) => unreachable!("a text was asked for"),
        }
    }

    /// The bytes that were asked for.
    pub fn beginning(self) -> Option<usize> {
        match self {
            Answer::Beginning(bytes) => bytes,
            Answer::Text(_) => unreachable!("a length was asked for"),
        }
    }
}

/// A template and the special tokens that it writes.
pub(super) struct Rendering {
    environment: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
}

impl Rendering {
    /// Compiles `source`.
    pub fn new(source: &str, special_tokens: BTreeMap<String, String>) -> Result<Self, Fault> {
        let compiled = contain(|| environment::new(source)).map_err(panicked)?;
        Ok(Rendering {
            environment: compiled.map_err(raised)?,
            special_tokens,
        })
    }

    /// The same rendering with a limit of `steps`.
    pub fn of_steps(&self, steps: u64) -> Self {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps));
        Rendering {
            environment,
            special_tokens: self.special_tokens.clone(),
        }
    }

    /// The answers to `jobs` for `given`; each text has at most `most` bytes.
    pub fn answers(
        &self,
        given: &Variables,
        jobs: &[Job],
        most: usize,
    ) -> Result<Vec<Answer>, Fault> {
        let mut answers: Vec<Answer> = Vec::with_capacity(jobs.len());
        for job in jobs {
            let text = contain(|| self.text(given, *job, most)).map_err(panicked)??;
            answers.push(match (job.give, answers.first()) {
                (Give::Beginning, Some(Answer::Text(whole))) => {
                    Answer::Beginning(whole.starts_with(&text).then_some(text.len()))
                }
                (Give::Beginning, _) => Answer::Beginning(None),
                (Give::Text, _) => Answer::Text(text),
            });
        }
        Ok(answers)
    }

    fn text(&self, given: &Variables, job: Job, most: usize) -> Result<String, Fault> {
        let tokens = self.special_tokens.iter();
        let mut variables: BTreeMap<&str, Jinja> = tokens
            .map(|(name, token)| (name.as_str(), token.as_str().into()))
            .collect();
        variables.extend([
            ("messages", given.messages[..job.turns].to_vec().into()),
            ("tools", given.tools.clone()),
            ("documents", Jinja::from(())),
            ("add_generation_prompt", job.add_generation_prompt.into()),
            (MARKING, job.marked.into()),
        ]);
        let mut page = Page {
            text: Vec::new(),
            most,
            is_full: false,
        };
        let template = self.environment.get_template(NAME);
        let written = template.and_then(|template| {
            let written = template.render_captured_to(Jinja::from_iter(variables), &mut page);
            written.map(drop)
        });
        if page.is_full {
            return Err(Fault::Met(Met {
                bound: Bound::Text { bytes: most },
                line: None,
            }));
        }
        written.map_err(raised)?;
        Ok(String::from_utf8(page.text).expect("a template writes text"))
    }
}

/// The output text.
struct Page {
    text: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl io::Write for Page {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.most - self.text.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// minijinja's message in one line, without the error kind where there are details.
fn raised(error: minijinja::Error) -> Fault {
    if let Some(met) = bounds::of_error(&error) {
        return Fault::Met(met);
    }
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    Fault::Raised(match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail,
    })
}

/// The standard library panics where a text would exceed the address space.
fn panicked(message: String) -> Fault {
    if message.contains("capacity overflow") {
        Fault::Met(Met {
            bound: Bound::Memory {
                bytes: bounds::memory_bytes(0),
            },
            line: None,
        })
    } else {
        Fault::Raised(message)
    }
}
