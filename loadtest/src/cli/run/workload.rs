//! What `run` sends beside fixed chats: generated workloads.

use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::load::bodies::Script;
use smg_loadtest::load::made::{DOCUMENTS, MadeOptions, Sharing};

use crate::cli::seconds;

#[derive(clap::Args)]
#[command(next_help_heading = "Workload")]
pub(super) struct WorkloadArgs {
    /// Prompts that are made as they are sent, instead of --body
    #[arg(long, value_enum, conflicts_with_all = ["body", "body_file"])]
    pub workload: Option<Workload>,

    /// What texts are written in
    #[arg(long, value_enum, default_value_t = Text::English, requires = "workload")]
    text: Text,

    /// Prefixes, documents or system prompts to share
    #[arg(long, value_name = "N", default_value_t = 50, requires = "workload",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub groups: u32,

    /// Length of what is shared; of rag, of a prompt's documents together
    #[arg(long, value_name = "N", default_value_t = 4_000, requires = "workload",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub prefix_chars: u32,

    /// Length of each prompt's own part
    #[arg(long, value_name = "N", default_value_t = 400, requires = "workload",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub question_chars: u32,

    /// churn: seconds for which a prefix is used
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds,
          requires = "workload")]
    lifetime: Duration,

    /// chats: questions in a conversation
    #[arg(long, value_name = "N", default_value_t = 5, requires = "workload",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub turns: u32,

    /// chats: seconds between an answer and the next question
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds,
          requires = "workload")]
    pub think: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Workload {
    /// Nothing is shared
    Unique,
    /// Each prompt begins with one of --groups prefixes
    Groups,
    /// Prefixes come and go, each after --lifetime
    Churn,
    /// One system prompt, then 4 of --groups documents, popular ones more often, then the question
    Rag,
    /// Conversations over --groups system prompts: each question waits for the last answer and brings
    /// all that was said, answers are streams; --rate is new conversations per second
    Chats,
}

#[derive(Clone, Copy, ValueEnum)]
enum Text {
    /// Words of letters
    English,
    /// Chinese characters, three bytes each
    Cjk,
}

impl WorkloadArgs {
    pub fn script(&self) -> Script {
        match self.text {
            Text::English => Script::English,
            Text::Cjk => Script::Cjk,
        }
    }

    /// What is shared is kept in memory, in one copy.
    pub fn check(&self) -> Result<(), String> {
        const MOST_CHARS: u64 = 1 << 28;
        if u64::from(self.groups) * u64::from(self.prefix_chars) > MOST_CHARS {
            return Err(format!(
                "--groups {} of --prefix-chars {} do not fit in memory; together at most {MOST_CHARS} characters",
                self.groups, self.prefix_chars
            ));
        }
        if self.workload == Some(Workload::Rag) && (self.groups as usize) < DOCUMENTS {
            return Err(format!(
                "--workload rag needs --groups {DOCUMENTS} or more: so many documents go into a prompt"
            ));
        }
        Ok(())
    }

    /// Independent requests; `None` for conversations.
    pub fn made(&self, workload: Workload) -> Option<MadeOptions> {
        let sharing = match workload {
            Workload::Unique => Sharing::Nothing,
            Workload::Groups => Sharing::Groups,
            Workload::Churn => Sharing::Churn,
            Workload::Rag => Sharing::Documents,
            Workload::Chats => return None,
        };
        Some(MadeOptions {
            sharing,
            script: self.script(),
            groups: self.groups as usize,
            prefix_chars: self.prefix_chars as usize,
            question_chars: self.question_chars as usize,
            lifetime: self.lifetime,
        })
    }
}
