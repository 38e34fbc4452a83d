//! What is said and answered in turn -> the tokens of the whole conversation, by a chat template.

use std::path::Path;

use espalier_data::{ChatTemplate, Message, TextTokenizer};
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use super::prompts;

/// A conversation.
pub struct Chat {
    template: ChatTemplate,
    /// The system's message, if any, then the turns.
    messages: Vec<Message>,
    /// Messages that no reset takes away.
    kept: usize,
}

impl Chat {
    /// A conversation that `system` opens, in the template `choice` for the model in `directory`.
    ///
    /// # Errors
    /// A model without a template where none is chosen; as [`ChatTemplate::open`].
    pub fn open(
        directory: &Path,
        choice: Option<&str>,
        system: Option<&str>,
    ) -> Result<Self, Error> {
        let template =
            ChatTemplate::open(directory, choice)?.ok_or_else(|| no_template(directory))?;
        let system = system.map(|text| Message::new("system", text));
        let messages: Vec<Message> = system.into_iter().collect();
        Ok(Chat {
            template,
            kept: messages.len(),
            messages,
        })
    }

    /// The tokens of a conversation that `said` begins; this one stays as it is.
    ///
    /// # Errors
    /// As [`Chat::ask`].
    pub fn opening(&mut self, said: &str, tokenizer: &TextTokenizer) -> Result<Vec<i32>, Error> {
        let tokens = self.ask(said, tokenizer)?;
        self.take_back();
        Ok(tokens)
    }

    /// Adds the user's turn and returns the tokens of the conversation up to where the answer
    /// begins.
    ///
    /// # Errors
    /// What the template raises, a text that the tokenizer cannot encode; the turn is not added
    /// then.
    pub fn ask(&mut self, said: &str, tokenizer: &TextTokenizer) -> Result<Vec<i32>, Error> {
        self.messages.push(Message::new("user", said));
        let rendered = self.template.render(&self.messages, true);
        let tokens = rendered.map_err(Error::from).and_then(|text| {
            let encoded = tokenizer.encode_rendered(&text);
            encoded.map_err(prompts::unencodable)
        });
        if tokens.is_err() {
            self.take_back();
        }
        tokens
    }

    /// Adds the model's turn.
    pub fn answered(&mut self, text: String) {
        self.messages.push(Message::new("assistant", text));
    }

    /// Takes the last turn away.
    pub fn take_back(&mut self) {
        self.messages.pop();
    }

    /// Begins anew: the system's message alone is kept.
    pub fn reset(&mut self) {
        self.messages.truncate(self.kept);
    }
}

fn no_template(directory: &Path) -> Error {
    Error::Usage(UsageError {
        message: format!(
            "{} has no chat template: expected one in tokenizer_config.json or chat_template.jinja",
            directory.display()
        ),
        next_step: format!(
            "choose one with --chat-template: {}, or a file",
            ChatTemplate::shipped()
        ),
    })
}
