//! `bulkmem man`.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::Outcome;
use crate::args::{Cli, ManArgs};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::plain::plain;

pub(super) fn run(args: &ManArgs) -> Outcome {
    let command = Cli::command();
    let Some(directory) = &args.output else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        output::print_raw(&page)?;
        return Ok(Exit::Done);
    };
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::new(format!("cannot write the manual page {}: {error}", path.display()))
            .help("name a directory you may write to: bulkmem man --output DIR")
    };
    let mut command = command.disable_help_subcommand(true);
    command.build();
    for (name, page) in pages(&command)? {
        let path = directory.join(name);
        bulkmem_output::write(&path, &page).map_err(|error| cannot(&path, error))?;
    }
    output::print(&format!("Wrote the manual pages to {}\n", plain(&directory.display().to_string())))?;
    Ok(Exit::Done)
}

/// File names and manual pages of a command and all commands below it.
fn pages(command: &Command) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        found.extend(pages(below)?);
    }
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    found.push((page.get_filename(), text));
    Ok(found)
}
