//! Chat templates that need no file: the published texts of five families.

/// Names and texts. Sources, in this order: the `chat_template` of meta-llama/Llama-2-7b-chat-hf,
/// meta-llama/Meta-Llama-3-8B-Instruct, mistralai/Mistral-7B-Instruct-v0.1, the ChatML of
/// transformers' manual, HuggingFaceH4/zephyr-7b-beta.
pub(super) const SHIPPED: [(&str, &str); 5] = [
    ("llama2", include_str!("llama2.jinja")),
    ("llama3", include_str!("llama3.jinja")),
    ("mistral", include_str!("mistral.jinja")),
    ("chatml", include_str!("chatml.jinja")),
    ("zephyr", include_str!("zephyr.jinja")),
];
