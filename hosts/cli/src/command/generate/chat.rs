//! Turns of a conversation -> its tokens, by a chat template.

use std::path::Path;

use espalier_data::{ChatTemplate, GenerationPrompt, Message, TextTokenizer};
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use super::prompts;

/// A conversation.
pub struct Chat {
    template: ChatTemplate,
    /// The system's message, if any, then the turns.
    messages: Vec<Message>,
    /// Messages that a reset keeps.
    kept: usize,
}

impl Chat {
    /// A conversation that starts with `system`, in the template `choice` for the model in
    /// `directory`.
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

    /// The tokens of a conversation that starts with `text`; this one stays unchanged.
    ///
    /// # Errors
    /// As [`Chat::ask`].
    pub fn opening(&mut self, text: &str, tokenizer: &TextTokenizer) -> Result<Vec<i32>, Error> {
        let tokens = self.ask(text, tokenizer)?;
        self.take_back();
        Ok(tokens)
    }

    /// Adds the user's turn and returns the tokens of the conversation up to the start of the
    /// answer.
    ///
    /// # Errors
    /// [`Error::Usage`] where the template raises an error or the tokenizer cannot encode the text;
    /// the turn is not added then.
    pub fn ask(&mut self, text: &str, tokenizer: &TextTokenizer) -> Result<Vec<i32>, Error> {
        self.messages.push(Message::new("user", text));
        let rendered = self
            .template
            .render(&self.messages, GenerationPrompt::Added);
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

    /// Removes the last turn.
    pub fn take_back(&mut self) {
        self.messages.pop();
    }

    /// Removes all messages but the system's.
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
