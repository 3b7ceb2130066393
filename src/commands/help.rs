//! LOCK.HELP: the commands, a line each.

use super::apply::Apply;
use super::{Access, Call, Command, Keys, Reply, Spec, TABLE};
use crate::args::Args;
use crate::error::Error;
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
        let specs = TABLE.iter().map(|(_, spec)| spec).filter(|spec| spec.name != Apply::SPEC.name);
        let lines: Vec<String> = specs
            .flat_map(|spec| [spec.usage(), format!("    {}", spec.summary.to_string_lossy())])
            .collect();
        call.ctx.reply_array(lines.len());
        for line in lines {
            call.ctx.reply_status(&CString::new(line).unwrap_or_default());
        }
        Ok(Reply::Sent)
    }
}
