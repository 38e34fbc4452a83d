//! The arguments of `host completions` and `host manual`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  host completions bash > ~/.local/share/bash-completion/completions/host\n  \
    host completions zsh > ~/.zfunc/_host\n  \
    host completions fish > ~/.config/fish/completions/host.fish"
)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
    /// The program's name, where it has another: espalier
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  host manual --out ~/.local/share/man/man1 && man host-train")]
pub struct ManualArguments {
    /// Folder of the pages, which is made: host.1, host-train.1 and so on
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
