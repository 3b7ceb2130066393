//! LOCK.HELP: the commands, a line each.

use super::{Access, Call, Command, Keys, Reply, Spec, TABLE};
use crate::args::Args;
use crate::error::Error;
use crate::ffi::command_info::{text, usage};
use std::ffi::CString;

pub(super) struct Help;

impl Command for Help {
    const SPEC: Spec = Spec {
        name: c"LOCK.HELP",
        summary: c"Shows the commands of the module.",
        complexity: c"O(1)",
        flags: c"fast",
        categories: c"lock fast",
        arity: 1,
        keys: Keys::None,
        access: Access::Read,
        params: &[],
    };

    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error> {
        args.end()?;
        let specs = TABLE.iter().map(|(_, spec)| spec);
        let lines: Vec<String> =
            specs.flat_map(|spec| [usage(spec), format!("    {}", text(spec.summary))]).collect();
        call.ctx.reply_array(lines.len());
        for line in lines {
            call.ctx.reply_status(&CString::new(line).unwrap_or_default());
        }
        Ok(Reply::Sent)
    }
}
