//! Whose files hold a weight, and the order of codes in their words.

use espalier_interface::saved_form::SavedAxis;

/// Codes of 4 bits in a word of I32.
pub const PER_WORD: u64 = 8;

/// Whose files a weight is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// AutoGPTQ's: words of inputs, zero points less one, each modulo 16.
    Gptq,
    /// GPTQModel's first format: the same, but one is taken from the zero points of a whole word,
    /// so that one of 0 borrows from the next.
    GptqModel,
    /// GPTQModel's second format: the same with whole zero points.
    GptqV2,
    /// AutoAWQ's `gemm`: words of outputs.
    Awq,
}

impl Files {
    /// The files of that name; none where there are no such files.
    pub fn named(name: &str) -> Option<Self> {
        [Files::Gptq, Files::GptqModel, Files::GptqV2, Files::Awq]
            .into_iter()
            .find(|files| files.name() == name)
    }

    /// The name among the options.
    pub fn name(self) -> &'static str {
        match self {
            Files::Gptq => "gptq",
            Files::GptqModel => "gptqmodel",
            Files::GptqV2 => "gptq_v2",
            Files::Awq => "awq",
        }
    }

    /// What is added to a zero point where it is saved, modulo 16.
    pub fn added(self) -> u8 {
        match self {
            Files::Gptq => 15,
            Files::GptqModel | Files::GptqV2 | Files::Awq => 0,
        }
    }

    /// What is taken from a word of eight zero points where it is saved.
    pub fn taken_from_words(self) -> u32 {
        match self {
            Files::GptqModel => 0x1111_1111,
            Files::Gptq | Files::GptqV2 | Files::Awq => 0,
        }
    }

    /// The axes of a matrix of 4-bit elements `[rows, cols]` that is saved `[cols, rows / 8]`, in
    /// words of eight rows.
    pub fn words_of_rows(self, rows: u64, cols: u64) -> Vec<SavedAxis> {
        match self {
            Files::Gptq | Files::GptqModel | Files::GptqV2 => {
                vec![SavedAxis::new(cols, 1), SavedAxis::new(rows, cols)]
            }
            // Rows 0 2 4 6 1 3 5 7 of eight.
            Files::Awq => vec![
                SavedAxis::new(cols, 1),
                SavedAxis::new(rows / PER_WORD, PER_WORD * cols),
                SavedAxis::new(2, cols),
                SavedAxis::new(4, 2 * cols),
            ],
        }
    }
}
