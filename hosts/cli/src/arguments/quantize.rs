//! The arguments of `host quantize`.

use clap::Args;

use super::NewModelArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host quantize --model models/llama --plugins nf4 --out models/llama-nf4\n  \
    host quantize --model models/llama --plugins nf4 --set quantizer.nf4.block_size=128 --out models/llama-nf4")]
pub struct QuantizeArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
}
