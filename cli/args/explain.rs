//! Options of `gpuwhy explain`.

use clap::Args;

use crate::explain;

pub(super) const EXPLAIN_HELP: &str = "\
WORD is a term (\"kernel launches\") or a name in JSON, tables and SQL (launch, dispatch, no_syncs).

EXIT CODES:
  0  the word was explained, or the words were listed
  2  the word is unknown; stderr names the nearest one

EXAMPLES:
  gpuwhy explain
  gpuwhy explain dispatch
  gpuwhy explain steady time";

#[derive(Args)]
pub struct ExplainArgs {
    /// The word [default: list all words]
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

impl From<ExplainArgs> for explain::Props {
    fn from(args: ExplainArgs) -> Self {
        Self { words: args.words }
    }
}
